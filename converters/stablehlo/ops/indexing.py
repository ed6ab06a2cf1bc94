"""Reads by index: index, index_select, gather, take, searchsorted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import axis
from tpu_export.converters.stablehlo.registry import lowers
from tpu_export.converters.stablehlo.running import not_empty, running

aten = torch.ops.aten
Dim = Any  # an int or a JAX dimension expression
_SMALL = 2**31


def narrowed(index: Array, size: Dim) -> Array:
    """Return an index in 32 bits where they suffice: 64-bit arithmetic is emulated on TPU."""
    fits = not isinstance(size, int) or size < _SMALL
    return index.astype(jnp.int32) if fits else index


def wrapped(index: Array, size: Dim) -> Array:
    """Return an index with torch's negative places counted from the end."""
    index = narrowed(index, size)
    if not jnp.issubdtype(index.dtype, jnp.signedinteger):
        return index
    return jnp.where(index < 0, index + jnp.asarray(size, index.dtype), index)


def counted(what: str) -> Dim:
    """Return the size that the data decides of the op being lowered.

    Raises:
        UnsupportedOptionError: it may decide none: for LiteRT, in a body of control flow.
    """
    sizes = context.current().sizes
    if not sizes:
        raise UnsupportedOptionError(
            f"{what} has a shape that depends on the data",
            hint="use torch.where or a mask that keeps the shape",
        )
    return sizes[0]


def selected(mask: Array, count: Dim) -> list[Array]:
    """Return the places that a mask selects, int64[count] for each of its axes."""
    flat = mask.reshape(-1).astype(bool)
    order = running(lax.cumsum, flat.astype(jnp.int64), 0) - 1
    rest = (
        jnp.zeros(count, jnp.int64)
        .at[jnp.where(flat, order, count)]
        .set(lax.iota(jnp.int64, flat.shape[0]), mode="drop")
    )
    if mask.ndim == 1:
        return [rest]
    found: list[Array] = []
    for size in reversed(mask.shape):
        length = jnp.asarray(size, jnp.int64)
        found.insert(0, rest % length)
        rest = rest // length
    return found


def concrete(x: Array) -> np.ndarray[Any, Any] | None:
    """Return the value of an array that is known while lowering, else None."""
    return None if isinstance(x, jax.core.Tracer) else np.asarray(x)


def without_masks(
    x: Array, indices: Sequence[Array | None]
) -> tuple[Array, list[Array | None]]:
    """Return x and indices where known masks became the places they select."""
    found: list[Array | None] = []
    for index in indices:
        if index is None or index.dtype not in (bool, jnp.uint8):
            found.append(index)
            continue
        mask = concrete(index)
        if mask is None:
            found += selected(index, counted("indexing with a boolean tensor"))
        else:
            found += [jnp.asarray(i) for i in np.nonzero(mask)]
    return x, found


def places(x: Array, indices: Sequence[Array | None]) -> tuple[Any, ...]:
    """Return NumPy-style index of torch's list of indices."""
    return tuple(
        slice(None) if index is None else wrapped(index, x.shape[d])
        for d, index in enumerate(indices)
    )


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(x: Array, indices: Sequence[Array | None]) -> Array:
    x, known = without_masks(x, indices)
    where = places(x, known)
    x = not_empty(x, *(d for d, index in enumerate(known) if index is not None))
    return x.at[where].get(mode="promise_in_bounds", wrap_negative_indices=False)


@lowers(aten.index_select.default)
def index_select(x: Array, dim: int, index: Array) -> Array:
    """aten::index_select refuses negative places: one gather is all."""
    if not x.ndim:
        return x
    dim = axis(dim, x.ndim)
    index = narrowed(index, x.shape[dim]).reshape(-1)
    where = (slice(None),) * dim + (index,)
    x = not_empty(x, dim)
    return x.at[where].get(mode="promise_in_bounds", wrap_negative_indices=False)


@lowers(aten.gather.default)
def gather(x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    if not x.ndim or not index.ndim:
        return jnp.broadcast_to(x.reshape(-1)[0], index.shape)
    dim = axis(dim, x.ndim)
    others = tuple(d for d in range(x.ndim) if d != dim)
    for d in others:
        if index.shape[d] != x.shape[d]:
            x = lax.slice_in_dim(x, 0, index.shape[d], axis=d)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(dim,),
        start_index_map=(dim,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    return lax.gather(
        not_empty(x, dim),
        narrowed(index, x.shape[dim])[..., None],
        numbers,
        (1,) * x.ndim,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


@lowers(aten.gather.default, target="litert")
def gather_plain(
    x: Array, dim: int, index: Array, *, sparse_grad: bool = False
) -> Array:
    if not x.ndim or not index.ndim:
        return jnp.broadcast_to(x.reshape(-1)[0], index.shape)
    where = mesh(index, axis(dim, x.ndim), x.shape)
    return x.at[where].get(mode="promise_in_bounds", wrap_negative_indices=False)


def mesh(index: Array, dim: int, shape: Sequence[Dim]) -> tuple[Array, ...]:
    """Return the full index of gather and scatter: `index` at dim, its own place elsewhere."""
    return tuple(
        narrowed(index, shape[d])
        if d == dim
        else lax.broadcasted_iota(jnp.int32, index.shape, d)
        for d in range(index.ndim)
    )


@lowers(aten.take_along_dim.default)
def take_along_dim(x: Array, indices: Array, dim: int | None = None) -> Array:
    if dim is None:
        flat = x.reshape(-1)
        return flat[wrapped(indices.reshape(-1), flat.shape[0])]
    dim = axis(dim, x.ndim)
    indices = wrapped(indices, x.shape[dim])
    common = [s if i == 1 else i for s, i in zip(x.shape, indices.shape, strict=True)]
    shape = tuple(indices.shape[d] if d == dim else s for d, s in enumerate(common))
    wide = tuple(x.shape[d] if d == dim else s for d, s in enumerate(common))
    x, indices = jnp.broadcast_to(x, wide), jnp.broadcast_to(indices, shape)
    return gather(x, dim, indices)


@lowers(aten.take.default)
def take(x: Array, index: Array) -> Array:
    flat = x.reshape(-1)
    where = wrapped(index, flat.shape[0])
    flat = not_empty(flat, 0)
    return flat.at[where].get(mode="promise_in_bounds", wrap_negative_indices=False)


@lowers(aten.nonzero.default, aten.argwhere.default)
def nonzero(x: Array) -> Array:
    known = concrete(x)
    if known is None:
        count = counted("nonzero")
        if not x.ndim:
            return jnp.zeros((count, 0), jnp.int64)
        return jnp.stack(selected(x != 0, count), axis=-1)
    return jnp.asarray(np.argwhere(known), jnp.int64)


@lowers(aten.nonzero_static.default)
def nonzero_static(x: Array, *, size: int, fill_value: int = -1) -> Array:
    if x.size == 0:
        return jnp.full((size, x.ndim), fill_value, jnp.int64)
    found = jnp.argwhere(x, size=size, fill_value=fill_value)
    return found.astype(jnp.int64)


@lowers(aten.where.default, aten.nonzero_numpy.default)
def nonzero_numpy(x: Array) -> list[Array]:
    return list(nonzero(jnp.atleast_1d(x)).T)  # a scalar counts as one of one place


@lowers(aten.masked_select.default)
def masked_select(x: Array, mask: Array) -> Array:
    known = concrete(mask)
    x, mask = jnp.broadcast_arrays(*map(jnp.atleast_1d, (x, mask)))
    if known is None:
        return x[tuple(selected(mask, counted("masked_select")))]
    return x[np.broadcast_to(known, x.shape)]


def _searched(before: Array) -> Array:
    """Return where torch's halving of the last axis ends, in whatever order it is."""
    size = before.shape[-1]
    places = lax.broadcasted_iota(jnp.int32, before.shape, before.ndim - 1)
    start = jnp.zeros(before.shape[:-1], jnp.int32)
    end = jnp.full_like(start, size)
    for _ in range(size.bit_length() if isinstance(size, int) else 31):
        middle = start + (end - start) // 2  # `size` once the range is empty: no hit
        later = jnp.any(before & (places == middle[..., None]), -1)
        end = jnp.where(later | (start >= end), end, middle)
        start = jnp.where(later & (start < end), middle + 1, start)
    return start


def _place(before: Array, edges: Array) -> Array:
    """Count what is before; NaN among the edges leads torch's search astray."""
    count = partial(jnp.sum, axis=-1, dtype=jnp.int32)
    known = concrete(edges)
    exact = not jnp.issubdtype(edges.dtype, jnp.floating)
    if exact or (known is not None and not np.isnan(known).any()):
        return count(before)
    odd = jnp.any(edges != edges)
    if context.current().target == "litert":  # which loads no branches
        return jnp.where(odd, _searched(before), count(before))
    found: Array = lax.cond(odd, _searched, count, before)
    return found


@lowers(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    sorted_sequence: Array,
    values: Array | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    if sorter is not None:
        sorted_sequence = gather(sorted_sequence, -1, sorter)
    v = jnp.asarray(values)[..., None]
    edges = sorted_sequence
    if edges.ndim > 1:
        edges = edges[..., None, :]
    before = ~(edges > v) if right or side == "right" else ~(edges >= v)
    dtype = jnp.int32 if out_int32 else jnp.int64
    return _place(before, edges).astype(dtype)


@lowers(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(
    values: Array | float,
    boundaries: Array,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> Array:
    return searchsorted(boundaries, values, out_int32=out_int32, right=right)
