"""Least squares: the solution of least norm, which all drivers of LAPACK but gels give."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.ops.linear_algebra import is_vector
from tpu_export.converters.stablehlo.ops.shape import adjoint
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.linalg_lstsq.default)
def lstsq(
    a: Array, b: Array, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Array, Array, Array, Array]:
    """Return solution, residuals, rank and singular values.

    gels takes any matrix for one of full rank; of gelsd and gelss the residuals are those of
    full rank, which nothing reads.
    """
    if rcond is not None and driver in (None, "gelsy"):
        message = (
            "rcond of the driver gelsy is a cut in a pivoted QR: say driver='gelsd'"
        )
        raise UnsupportedOptionError(message, hint="say driver='gelsd'")
    vector = is_vector(a, b)
    columns = b[..., None] if vector else b
    left, values, right = jnp.linalg.svd(a, full_matrices=False)
    cut = max(a.shape[-2:]) * float(np.finfo(values.dtype).eps)
    kept = values > (cut if rcond is None else rcond) * jnp.max(
        values, -1, keepdims=True, initial=0
    )
    inverse = jnp.where(kept, 1 / values, 0).astype(a.dtype)
    turned = jnp.matmul(adjoint(left), columns, precision="highest")
    solution = jnp.matmul(
        adjoint(right), inverse[..., None] * turned, precision="highest"
    )
    empty = jnp.zeros(0, values.dtype)
    residuals = empty
    if a.shape[-2] > a.shape[-1] and driver in ("gels", "gelsd", "gelss"):
        left_over = jnp.matmul(a, solution, precision="highest") - columns
        residuals = jnp.sum(jnp.square(jnp.abs(left_over)), -2)
    return (
        solution[..., 0] if vector else solution,
        residuals,
        jnp.zeros(0, jnp.int64) if driver == "gels" else jnp.sum(kept, -1),
        values if driver in ("gelsd", "gelss") else empty,
    )
