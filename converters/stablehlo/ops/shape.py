"""Views: reshape, expand, permute, squeeze, and the reordering of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import axes, axis
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.view_copy.default,
    aten._reshape_alias.default,
    aten._reshape_copy.default,
)
def reshape(x: Array, size: Sequence[int], *_: object) -> Array:
    return x.reshape(tuple(size))


@lowers(aten.view_as.default, aten.reshape_as.default)
def view_as(x: Array, other: Array) -> Array:
    return x.reshape(other.shape)


@lowers(aten.flatten.using_ints)
def flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    start, end = axis(start_dim, x.ndim), axis(end_dim, x.ndim)
    size = math.prod(x.shape[start : end + 1])
    return x.reshape((*x.shape[:start], size, *x.shape[end + 1 :]))


@lowers(aten.ravel.default)
def ravel(x: Array) -> Array:
    return x.reshape(-1)


@lowers(aten.unflatten.int)
def unflatten(x: Array, dim: int, sizes: Sequence[int]) -> Array:
    dim = axis(dim, x.ndim)
    sizes = list(sizes)
    if -1 in [s for s in sizes if isinstance(s, int)]:
        known = math.prod(s for s in sizes if not (isinstance(s, int) and s == -1))
        sizes[sizes.index(-1)] = x.shape[dim] // known
    return x.reshape((*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


@lowers(aten.expand.default, aten.expand_copy.default)
def expand(x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    lead = len(size) - x.ndim
    kept = [
        x.shape[i - lead] if isinstance(s, int) and s == -1 else s
        for i, s in enumerate(size)
    ]
    return jnp.broadcast_to(x, tuple(kept))


@lowers(aten.expand_as.default)
def expand_as(x: Array, other: Array) -> Array:
    return jnp.broadcast_to(x, other.shape)


@lowers(aten.broadcast_to.default)
def broadcast_to(x: Array, size: Sequence[int]) -> Array:
    return expand(x, size)


@lowers(aten.broadcast_tensors.default)
def broadcast_tensors(tensors: Sequence[Array]) -> list[Array]:
    return list(jnp.broadcast_arrays(*tensors))


@lowers(aten.permute.default, aten.permute_copy.default)
def permute(x: Array, dims: Sequence[int]) -> Array:
    return jnp.transpose(x, tuple(axis(d, x.ndim) for d in dims))


@lowers(
    aten.transpose.int,
    aten.transpose_copy.int,
    aten.swapaxes.default,
    aten.swapdims.default,
)
def transpose(x: Array, dim0: int, dim1: int) -> Array:
    return jnp.swapaxes(x, dim0, dim1) if x.ndim else x


@lowers(aten.t.default, aten.numpy_T.default, aten.t_copy.default)
def t(x: Array) -> Array:
    return x.T


@lowers(aten.mT.default)
def matrix_transpose(x: Array) -> Array:
    return jnp.swapaxes(x, -1, -2)


@lowers(aten.adjoint.default, aten.mH.default, aten.matrix_H.default)
def adjoint(x: Array) -> Array:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


@lowers(
    aten.movedim.int, aten.movedim.intlist, aten.moveaxis.int, aten.moveaxis.intlist
)
def movedim(
    x: Array, source: int | Sequence[int], destination: int | Sequence[int]
) -> Array:
    return jnp.moveaxis(x, source, destination) if x.ndim else x


@lowers(aten.squeeze.default, aten.squeeze_copy.default)
def squeeze(x: Array) -> Array:
    return squeeze_dims(x, range(x.ndim))


@lowers(aten.squeeze.dim, aten.squeeze.dims, aten.squeeze_copy.dim)
def squeeze_dims(x: Array, dim: int | Sequence[int]) -> Array:
    listed = [dim] if isinstance(dim, int) else dim
    wanted = {axis(d, x.ndim) for d in listed}
    gone = tuple(
        d
        for d in sorted(wanted)
        if x.ndim and isinstance(x.shape[d], int) and x.shape[d] == 1
    )
    return jnp.squeeze(x, gone) if gone else x


@lowers(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def unsqueeze(x: Array, dim: int) -> Array:
    return jnp.expand_dims(x, axis(dim, x.ndim + 1))


@lowers(aten.flip.default)
def flip(x: Array, dims: Sequence[int]) -> Array:
    return lax.rev(x, axes(dims, x.ndim)) if dims and x.ndim else x


@lowers(aten.flip.default, target="litert")
def flip_each(x: Array, dims: Sequence[int]) -> Array:
    """Flip axes one by one: LiteRT reverses adjacent ones only."""
    for dim in dims if x.ndim else ():
        x = lax.rev(x, (axis(dim, x.ndim),))
    return x


@lowers(aten.fliplr.default)
def fliplr(x: Array) -> Array:
    return lax.rev(x, (1,))


@lowers(aten.flipud.default)
def flipud(x: Array) -> Array:
    return lax.rev(x, (0,))


@lowers(aten.rot90.default)
def rot90(x: Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> Array:
    return jnp.rot90(x, k, (dims[0], dims[1]))


@lowers(aten.roll.default)
def roll(
    x: Array, shifts: int | Sequence[int], dims: int | Sequence[int] = ()
) -> Array:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        return roll(x.reshape(-1), shifts, 0).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, axis(dim, x.ndim))
    return x


def _rolled(x: Array, shift: int, dim: int) -> Array:
    """Two static slices, which XLA fuses; jnp.roll emits dynamic ones."""
    if not isinstance(x.shape[dim], int) or not isinstance(shift, int):
        return jnp.roll(x, shift, dim)
    size = x.shape[dim]
    if not x.ndim or size == 0 or shift % size == 0:
        return x
    cut = size - shift % size
    head = lax.slice_in_dim(x, 0, cut, axis=dim)
    tail = lax.slice_in_dim(x, cut, size, axis=dim)
    return lax.concatenate([tail, head], dim)


@lowers(aten.repeat.default, aten.tile.default)
def repeat(x: Array, repeats: Sequence[int]) -> Array:
    """Broadcast and reshape: no copy that XLA could not fuse."""
    counts = (1,) * (x.ndim - len(repeats)) + tuple(repeats)
    shape = (1,) * (len(counts) - x.ndim) + x.shape
    pairs = [d for n, s in zip(counts, shape, strict=True) for d in (n, s)]
    kept = tuple(range(1, 2 * len(shape), 2))
    wide = lax.broadcast_in_dim(x.reshape(shape), tuple(pairs), kept)
    return wide.reshape(tuple(n * s for n, s in zip(counts, shape, strict=True)))


@lowers(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    sizes = x.shape[dim1], x.shape[dim2]
    if all(isinstance(size, int) for size in sizes):
        return jnp.asarray(jnp.diagonal(x, offset, dim1, dim2))
    x = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    row, column = max(-offset, 0), max(offset, 0)
    shorter = jax.core.min_dim(sizes[0] - row, sizes[1] - column)
    places = lax.iota(jnp.int32, jax.core.max_dim(shorter, 0))
    return x[..., places + row, places + column]


@lowers(aten.linalg_diagonal.default)
def linalg_diagonal(
    x: Array, *, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Array:
    return diagonal(x, offset, dim1, dim2)


@lowers(aten.diag.default)
def diag(x: Array, diagonal: int = 0) -> Array:
    return jnp.diag(x, diagonal)


@lowers(aten.diag_embed.default)
def diag_embed(x: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    size = x.shape[-1] + abs(offset)
    row, column = lax.iota(jnp.int32, size)[:, None], lax.iota(jnp.int32, size)
    wide = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(max(-offset, 0), max(offset, 0))])
    square = jnp.where(column - row == offset, wide[..., :, None], 0).astype(x.dtype)
    return jnp.moveaxis(square, (-2, -1), (dim1, dim2))


@lowers(aten.diagflat.default)
def diagflat(x: Array, offset: int = 0) -> Array:
    return jnp.diag(x.reshape(-1), offset)


def _triangle(x: Array, diagonal: int) -> Array:
    row = lax.broadcasted_iota(jnp.int32, x.shape[-2:], 0)
    return row + diagonal >= lax.broadcasted_iota(jnp.int32, x.shape[-2:], 1)


@lowers(aten.tril.default)
def tril(x: Array, diagonal: int = 0) -> Array:
    return jnp.where(_triangle(x, diagonal), x, jnp.zeros((), x.dtype))


@lowers(aten.triu.default)
def triu(x: Array, diagonal: int = 0) -> Array:
    return jnp.where(_triangle(x, diagonal - 1), jnp.zeros((), x.dtype), x)


@lowers(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(
    x: Array,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Array:
    """Assumes that the storage holds `x` row by row."""
    flat, offset = x.reshape(-1), storage_offset or 0
    return flat.at[strided_places(size, stride, offset)].get(
        mode="promise_in_bounds", wrap_negative_indices=False
    )


def strided_places(
    size: Sequence[int], stride: Sequence[int], offset: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    """Return the place in the storage of each element of a strided view."""
    grid = np.full(tuple(size), offset, np.int32)
    for dim, step in enumerate(stride):
        places = np.arange(size[dim], dtype=np.int32) * step
        grid += places.reshape([-1] + [1] * (len(size) - dim - 1))
    return grid
