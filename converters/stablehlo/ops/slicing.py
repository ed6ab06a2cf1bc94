"""Joining and cutting along dims: cat, stack, slice, select, split, unfold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.counting import slice_ends
from tpu_export.converters.stablehlo.operands import axis, promote
from tpu_export.converters.stablehlo.ops.indexing import counted
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Dim = Any  # an int or a JAX dimension expression


@lowers(aten.cat.default, aten.concat.default, aten.concatenate.default)
def cat(tensors: Sequence[Array], dim: int = 0) -> Array:
    parts = promote(*tensors)
    # torch skips empty 1-d tensors whatever the rank of the others.
    kept = [x for x in parts if x.shape != (0,)] or list(parts[:1])
    return kept[0] if len(kept) == 1 else lax.concatenate(kept, axis(dim, kept[0].ndim))


@lowers(aten.stack.default)
def stack(tensors: Sequence[Array], dim: int = 0) -> Array:
    parts = promote(*tensors)
    return jnp.stack(parts, axis(dim, parts[0].ndim + 1))


@lowers(aten.hstack.default)
def hstack(tensors: Sequence[Array]) -> Array:
    return jnp.hstack(promote(*tensors))


@lowers(aten.vstack.default, aten.row_stack.default)
def vstack(tensors: Sequence[Array]) -> Array:
    return jnp.vstack(promote(*tensors))


@lowers(aten.dstack.default)
def dstack(tensors: Sequence[Array]) -> Array:
    return jnp.dstack(promote(*tensors))


@lowers(aten.column_stack.default)
def column_stack(tensors: Sequence[Array]) -> Array:
    return jnp.column_stack(promote(*tensors))


@lowers(aten.block_diag.default)
def block_diag(tensors: Sequence[Array]) -> Array:
    return jnp.asarray(jax.scipy.linalg.block_diag(*promote(*tensors)))


@lowers(aten.atleast_1d.default)
def atleast_1d(x: Array) -> Array:
    return jnp.atleast_1d(x)


@lowers(aten.atleast_2d.default)
def atleast_2d(x: Array) -> Array:
    return jnp.atleast_2d(x)


@lowers(aten.atleast_3d.default)
def atleast_3d(x: Array) -> Array:
    return jnp.atleast_3d(x)


@lowers(aten.meshgrid.default)
def meshgrid(tensors: Sequence[Array]) -> list[Array]:
    return meshgrid_indexing(tensors, indexing="ij")


@lowers(aten.meshgrid.indexing)
def meshgrid_indexing(tensors: Sequence[Array], *, indexing: str) -> list[Array]:
    return list(jnp.meshgrid(*map(jnp.atleast_1d, tensors), indexing=indexing))


def clipped(place: Dim | None, size: Dim, default: Dim) -> Dim:
    """Return a bound of a slice as 0 <= bound <= size, as Python counts it."""
    if place is None:
        return default
    if isinstance(place, int) and place >= 2**62:
        return size
    if not isinstance(place, int) or not isinstance(size, int):
        return _clipped_symbolic(place, size)
    return min(max(place + size if place < 0 else place, 0), size)


def _clipped_symbolic(place: Dim, size: Dim) -> Dim:
    if isinstance(place, int) and place < 0:
        return jax.core.max_dim(size + place, 0)
    return place if place == 0 else jax.core.min_dim(place, size)


def bounds(size: Dim, start: Dim | None, end: Dim | None) -> tuple[Dim, Dim]:
    """Return start <= end of a slice of an axis."""
    first, last = clipped(start, size, 0), clipped(end, size, size)
    if isinstance(first, int) and isinstance(last, int):
        return first, max(first, last)
    if (isinstance(first, int) and first == 0) or last is size:
        return first, last
    if isinstance(start, int) and isinstance(end, int) and start >= 0 > end:
        return first, first + jax.core.max_dim(size - start + end, 0)
    return first, first + jax.core.max_dim(last - first, 0)


@lowers(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_dim(
    x: Array,
    dim: int = 0,
    start: Dim | None = None,
    end: Dim | None = None,
    step: Dim = 1,
) -> Array:
    dim = axis(dim, x.ndim)
    read = isinstance(start, Array) or isinstance(end, Array)
    if read and context.current().sizes:
        first, _ = slice_ends(x.shape[dim], start, end)
        where = first + step * lax.iota(jnp.int64, counted("a slice to item()"))
        return jnp.take(x, where, axis=dim, mode="clip")
    first, last = bounds(x.shape[dim], start, end)
    whole = isinstance(first, int) and first == 0 and last is x.shape[dim]
    if step == 1 and (whole or (first == 0 and last == x.shape[dim])):
        return x
    return lax.slice_in_dim(x, first, last, step, dim)


@lowers(aten.narrow.default, aten.narrow_copy.default)
def narrow(x: Array, dim: int, start: Dim, length: Dim) -> Array:
    dim = axis(dim, x.ndim)
    if isinstance(start, Array):
        return lax.dynamic_slice_in_dim(x, start, length, dim)
    start = start + x.shape[dim] if isinstance(start, int) and start < 0 else start
    return lax.slice_in_dim(x, start, start + length, 1, dim)


@lowers(aten.narrow.Tensor)
def narrow_tensor(x: Array, dim: int, start: Array, length: Dim) -> Array:
    start = start.reshape(())
    return lax.dynamic_slice_in_dim(x, start, length, axis(dim, x.ndim))


@lowers(aten.select.int, aten.select_copy.int)
def select(x: Array, dim: int, index: Dim) -> Array:
    dim = axis(dim, x.ndim)
    if isinstance(index, Array):
        return jnp.asarray(lax.dynamic_index_in_dim(x, index, dim, keepdims=False))
    if isinstance(index, int) and index < 0:
        index = x.shape[dim] + index
    row = lax.slice_in_dim(x, index, index + 1, 1, dim)
    return jnp.squeeze(row, dim)


@lowers(aten.unbind.int, aten.unbind_copy.int)
def unbind(x: Array, dim: int = 0) -> list[Array]:
    return [select(x, dim, i) for i in range(x.shape[axis(dim, x.ndim)])]


def _cut(x: Array, dim: int, ends: Sequence[Dim]) -> list[Array]:
    starts = [0, *ends[:-1]]
    return [slice_dim(x, dim, a, b) for a, b in zip(starts, ends, strict=True)]


@lowers(
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.split.sizes,
)
def split_with_sizes(x: Array, sizes: Sequence[Dim], dim: int = 0) -> list[Array]:
    parts, place, dim = [], 0, axis(dim, x.ndim)
    for size in sizes:
        parts.append(lax.slice_in_dim(x, place, place + size, 1, dim))
        place = place + size
    return parts


@lowers(aten.split.Tensor, aten.split_copy.Tensor)
def split(x: Array, split_size: Dim, dim: int = 0) -> list[Array]:
    size = x.shape[axis(dim, x.ndim)]
    if isinstance(size, int) and size == 0:
        return [x]
    count = 1
    while not count * split_size >= size:  # a quotient of dimensions is no number
        count += 1
    return split_with_sizes(
        x, [split_size] * (count - 1) + [size - split_size * (count - 1)], dim
    )


@lowers(aten.chunk.default, aten.unsafe_chunk.default)
def chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    size = x.shape[axis(dim, x.ndim)]
    if isinstance(size, int) and size == 0:
        return [x] * chunks
    return split(x, (size + chunks - 1) // chunks, dim)


@lowers(aten.tensor_split.sections)
def tensor_split(x: Array, sections: int, dim: int = 0) -> list[Array]:
    size = x.shape[axis(dim, x.ndim)]
    small, extra = size // sections, size % sections
    return split_with_sizes(x, [small + (i < extra) for i in range(sections)], dim)


@lowers(aten.tensor_split.indices)
def tensor_split_indices(x: Array, indices: Sequence[Dim], dim: int = 0) -> list[Array]:
    return _cut(x, dim, [*indices, x.shape[axis(dim, x.ndim)]])


@lowers(aten.hsplit.int)
def hsplit(x: Array, sections: int) -> list[Array]:
    return tensor_split(x, sections, min(1, x.ndim - 1))


@lowers(aten.vsplit.int)
def vsplit(x: Array, sections: int) -> list[Array]:
    return tensor_split(x, sections, 0)


@lowers(aten.unfold.default, aten.unfold_copy.default)
def unfold(x: Array, dim: int, size: int, step: int) -> Array:
    """Windows along `dim`, their elements in a new last axis."""
    if not x.ndim:
        return x.reshape(1)
    dim = axis(dim, x.ndim)
    count = (x.shape[dim] - size) // step + 1
    if size == step:
        x = lax.slice_in_dim(x, 0, count * size, 1, dim)
        x = x.reshape((*x.shape[:dim], count, size, *x.shape[dim + 1 :]))
    else:
        starts = lax.iota(jnp.int32, count)[:, None] * step
        where = (slice(None),) * dim + (starts + lax.iota(jnp.int32, size),)
        x = x.at[where].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return jnp.moveaxis(x, dim + 1, -1)


@lowers(aten.repeat_interleave.self_int)
def repeat_interleave(
    x: Array, repeats: Dim, dim: int | None = None, *, output_size: Dim | None = None
) -> Array:
    x, dim = (x.reshape(-1), 0) if dim is None else (x, axis(dim, x.ndim))
    shape = (*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :])
    kept = tuple(d for d in range(x.ndim + 1) if d != dim + 1)
    wide = lax.broadcast_in_dim(x, shape, kept)
    return wide.reshape((*x.shape[:dim], x.shape[dim] * repeats, *x.shape[dim + 1 :]))
