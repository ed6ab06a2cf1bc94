"""Symbolic dimensions: torch's symbols as JAX dimension variables of one scope.

Only the shapes of inputs are translated; every later shape is JAX's own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import torch
from jax import export

from tpu_export.runtime.expressions import FUNCTIONS, evaluate
from tpu_export.runtime.signature import Dim, TensorSpec

PYTHON_OPS: dict[object, Callable[..., Any]] = {
    torch.sym_max: lambda a, b: jax.core.max_dim(a, b),
    torch.sym_min: lambda a, b: jax.core.min_dim(a, b),
    torch.sym_float: lambda a: a if isinstance(a, float) else float(a),
    torch.sym_int: lambda a: a,
    torch.sym_not: operator.not_,
    math.trunc: lambda a: a,
    math.floor: lambda a: a,
    torch.sym_ite: lambda c, a, b: a if c else b,
}


def input_shapes(
    inputs: Sequence[TensorSpec], dims: Sequence[Dim]
) -> list[jax.ShapeDtypeStruct]:
    """Return the shapes of a signature's inputs in one symbolic scope."""
    names = [dim.name for dim in dims]
    variables: Mapping[str, Any] = {}
    if names:
        constraints = [c for dim in dims for c in _constraints(dim)]
        symbols = export.symbolic_shape(", ".join(names), constraints=constraints)
        variables = dict(zip(names, symbols, strict=True))
    return [
        jax.ShapeDtypeStruct(
            tuple(
                size if isinstance(size, int) else evaluate(size, variables, _FUNCTIONS)
                for size in spec.shape
            ),
            jax.numpy.dtype(spec.dtype),
        )
        for spec in inputs
    ]


_FUNCTIONS = {
    **FUNCTIONS,
    "max": jax.core.max_dim,
    "min": jax.core.min_dim,
}


def _constraints(dim: Dim) -> list[str]:
    bounds = [f"{dim.name} >= {max(dim.minimum, 1)}"]
    if dim.maximum is not None:
        bounds.append(f"{dim.name} <= {dim.maximum}")
    return bounds
