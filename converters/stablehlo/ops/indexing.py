"""Reading and writing by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import axis
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.index.Tensor)
def index(x: Array, indices: Sequence[Array | None]) -> Array:
    return x[tuple(slice(None) if i is None else i for i in indices)]


@lowers(aten.index_select.default)
def index_select(x: Array, dim: int, index: Array) -> Array:
    return jnp.take(x, index, axis=axis(dim, x.ndim), mode="clip")


@lowers(aten.gather.default)
def gather(x: Array, dim: int, index: Array, **_: Any) -> Array:
    d = axis(dim, x.ndim)
    own = tuple(
        slice(None) if i == d else slice(0, n) for i, n in enumerate(index.shape)
    )
    return jnp.take_along_axis(x[own], index, axis=d, mode="clip")


@lowers(aten.index_put.default)
def index_put(
    x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False
) -> Array:
    where = x.at[tuple(slice(None) if i is None else i for i in indices)]
    return where.add(values) if accumulate else where.set(values)


@lowers(aten.copy.default)
def copy(x: Array, source: Array, non_blocking: bool = False) -> Array:
    return jnp.broadcast_to(source.astype(x.dtype), x.shape)


@lowers(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Array, value: Any) -> Array:
    return jnp.full(x.shape, value, x.dtype)


@lowers(aten.zero.default)
def zero(x: Array) -> Array:
    return jnp.zeros_like(x)
