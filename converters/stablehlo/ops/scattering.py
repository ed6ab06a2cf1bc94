"""Writes by index, as new values: scatter, index_put, copies into slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import (
    Number,
    Operand,
    axis,
    cast,
    highest,
    lowest,
    widen,
)
from tpu_export.converters.stablehlo.ops import scatter_free
from tpu_export.converters.stablehlo.ops.indexing import (
    concrete,
    mesh,
    places,
    without_masks,
    wrapped,
)
from tpu_export.converters.stablehlo.ops.masked_writes import masked_put
from tpu_export.converters.stablehlo.ops.shape import strided_places
from tpu_export.converters.stablehlo.ops.slicing import bounds
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Dim = Any  # an int or a JAX dimension expression
_OPTIONS: dict[str, Any] = {
    "mode": "promise_in_bounds",
    "wrap_negative_indices": False,
}
_METHODS = {
    "add": "add",
    "sum": "add",
    "mean": "add",
    "multiply": "multiply",
    "prod": "multiply",
    "amax": "max",
    "amin": "min",
}

# Half types are kept in float32 meanwhile, and rounded once, as in torch.
_ACCUMULATING = ("add", "multiply")


def _write(x: Array, where: Any, values: Array, method: str = "set") -> Array:
    if current().target == "litert":
        return scatter_free.write_at(x, where, values.astype(x.dtype), method)
    if x.dtype == bool and method == "add":
        return _write(x.astype(jnp.int32), where, values, method) != 0
    written: Array = getattr(x.at[where], method)(values.astype(x.dtype), **_OPTIONS)
    return written


def _scatter(
    x: Array, dim: int, index: Array, src: Operand, method: str = "set"
) -> Array:
    if not x.ndim:
        return _scatter(x[None], 0, index.reshape(-1), _flat(src), method)[0]
    if method in _ACCUMULATING and widen(x) is not x:
        return _scatter(widen(x), dim, index, src, method).astype(x.dtype)
    if not index.ndim:
        index, src = index.reshape(1), _flat(src)
    dim = axis(dim, x.ndim)
    values = cast(src, x.dtype)
    if values.ndim:
        values = values[tuple(slice(0, s) for s in index.shape)]
    else:
        values = jnp.broadcast_to(values, index.shape)
    if current().target == "litert":
        return scatter_free.write_along(x, dim, index, values, method)
    return _write(x, mesh(index, dim, x.shape), values, method)


def _flat(src: Operand) -> Operand:
    return src.reshape(-1) if isinstance(src, Array) else src


@lowers(aten.scatter.src, aten.scatter.value)
def scatter(x: Array, dim: int, index: Array, src: Operand) -> Array:
    return _scatter(x, dim, index, src)


@lowers(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with(
    x: Array, dim: int, index: Array, src: Operand, *, reduce: str
) -> Array:
    return _scatter(x, dim, index, src, _METHODS[reduce])


@lowers(aten.scatter_add.default)
def scatter_add(x: Array, dim: int, index: Array, src: Array) -> Array:
    return _scatter(x, dim, index, src, "add")


def _identity(reduce: str, dtype: Any) -> Any:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    return lowest(dtype) if reduce == "amax" else highest(dtype)


@lowers(aten.scatter_reduce.two)
def scatter_reduce(
    x: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> Array:
    if x.dtype == bool:
        bits = (x.astype(jnp.uint8), dim, index, src.astype(jnp.uint8), reduce)
        return scatter_reduce(*bits, include_self=include_self).astype(bool)
    start = x
    if not include_self:
        start = _scatter(x, dim, index, _identity(reduce, x.dtype))
    y = _scatter(start, dim, index, src, _METHODS[reduce])
    if reduce != "mean":
        return y
    ones = jnp.ones_like(x)
    count = ones if include_self else _scatter(ones, dim, index, 0)
    count = jnp.maximum(_scatter(count, dim, index, 1, "add"), 1)
    return y // count if jnp.issubdtype(x.dtype, jnp.integer) else y / count


def _rows(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    return (slice(None),) * dim + (wrapped(index, x.shape[dim]).reshape(-1),)


def _index_write(x: Array, dim: int, index: Array, src: Array, method: str) -> Array:
    if not x.ndim:
        return _index_write(x[None], 0, index, src.reshape(-1), method)[0]
    dim = axis(dim, x.ndim)
    return _write(x, _rows(x, dim, index), src, method)


@lowers(aten.index_add.default)
def index_add(
    x: Array, dim: int, index: Array, source: Array, *, alpha: Number = 1
) -> Array:
    source = source if alpha == 1 else source * cast(alpha, source.dtype)
    wide = widen(x) if x.ndim > 1 else x  # torch adds one by one in one dimension
    return _index_write(wide, dim, index, source, "add").astype(x.dtype)


@lowers(aten.index_copy.default)
def index_copy(x: Array, dim: int, index: Array, source: Array) -> Array:
    return _index_write(x, dim, index, source, "set")


@lowers(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Array, dim: int, index: Array, value: Operand) -> Array:
    return _index_write(x, dim, index, cast(value, x.dtype), "set")


@lowers(aten.index_reduce.default)
def index_reduce(
    x: Array,
    dim: int,
    index: Array,
    source: Array,
    reduce: str,
    *,
    include_self: bool = True,
) -> Array:
    if not x.ndim:
        args = (index.reshape(-1), source.reshape(-1), reduce)
        return index_reduce(x[None], 0, *args, include_self=include_self)[0]
    dim = axis(dim, x.ndim)
    shape = [-1 if d == dim else 1 for d in range(x.ndim)]
    wide = jnp.broadcast_to(wrapped(index, x.shape[dim]).reshape(shape), source.shape)
    return scatter_reduce(x, dim, wide, source, reduce, include_self=include_self)


@lowers(
    aten.index_put.default, aten._unsafe_index_put.default, aten._index_put_impl.default
)
def index_put(
    x: Array,
    indices: Sequence[Array | None],
    values: Array,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Array:
    masks = [i for i in indices if i is not None and i.dtype == bool]
    if any(concrete(m) is None for m in masks):
        return masked_put(x, indices, values, accumulate)
    x, known = without_masks(x, indices)
    return _write(x, places(x, known), values, "add" if accumulate else "set")


@lowers(aten.put.default)
def put(x: Array, index: Array, source: Array, accumulate: bool = False) -> Array:
    flat = x.reshape(-1)
    where = wrapped(index, flat.shape[0]).reshape(-1)
    method = "add" if accumulate else "set"
    return _write(flat, (where,), source.reshape(-1), method).reshape(x.shape)


@lowers(aten.select_scatter.default)
def select_scatter(x: Array, src: Array, dim: int, index: Dim) -> Array:
    dim = axis(dim, x.ndim)
    if isinstance(index, int) and index < 0:
        index = x.shape[dim] + index
    row = jnp.expand_dims(jnp.broadcast_to(src, _without(x.shape, dim)), dim)
    return lax.dynamic_update_slice_in_dim(x, row.astype(x.dtype), index, dim)


def _without(shape: Sequence[Dim], dim: int) -> tuple[Dim, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


@lowers(aten.slice_scatter.default)
def slice_scatter(
    x: Array,
    src: Array,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: Dim = 1,
) -> Array:
    dim = axis(dim, x.ndim)
    src = src.astype(x.dtype)
    if isinstance(start, Array):
        return lax.dynamic_update_slice_in_dim(x, src, start, dim)
    first, last = bounds(x.shape[dim], start, end)
    if step != 1:
        return _write(x, (slice(None),) * dim + (slice(first, last, step),), src)
    shape = (*x.shape[:dim], last - first, *x.shape[dim + 1 :])
    src = jnp.broadcast_to(src, shape)
    if isinstance(first, int) and first == 0 and last == x.shape[dim]:
        return src
    return lax.dynamic_update_slice_in_dim(x, src, first, dim)


@lowers(aten.diagonal_scatter.default)
def diagonal_scatter(
    x: Array, src: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    y = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    row = lax.iota(jnp.int32, src.shape[-1]) + max(-offset, 0)
    y = _write(y, (..., row, row + offset), src)
    return jnp.moveaxis(y, (-2, -1), (dim1, dim2))


@lowers(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: Array,
    src: Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Array:
    where = strided_places(size, stride, storage_offset or 0)
    return _write(x.reshape(-1), (where,), src).reshape(x.shape)
