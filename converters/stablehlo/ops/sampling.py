"""Grid sampling: every neighbour is a row of one flat table of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import NamedTuple

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import replaced, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
CUBIC = -0.75


class Tap(NamedTuple):
    """One neighbour along one axis: its index, its weight, and whether it is there."""

    place: Array
    weight: Array
    inside: Array


class Sampling(NamedTuple):
    """How torch is asked to sample, and along how many axes."""

    mode: int
    padding: int
    align_corners: bool
    rank: int


def _denormalized(place: Array, size: int, align_corners: bool) -> Array:
    if align_corners:
        return (place + 1) / 2 * (size - 1)
    return (place + 1) / 2 * size - 0.5


def _reflected(place: Array, size: int, align_corners: bool) -> Array:
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if isinstance(span, int) and span == 0:
        return jnp.zeros_like(place)
    place = jnp.abs(place - low)
    extra = jnp.fmod(place, span)
    odd = jnp.floor(place / span) % 2 == 1
    return jnp.where(odd, span - extra, extra) + low


def _bounded(place: Array, size: int, how: Sampling) -> Array:
    if how.padding == ZEROS:
        return place
    if how.padding == REFLECTION:
        place = _reflected(place, size, how.align_corners)
    # torch's kernels bound NaN at one end in images, at the other in volumes.
    end = 0 if how.rank == 2 else size - 1
    return replaced(jnp.clip(place, 0, size - 1), place != place, end)


def _tap(place: Array, weight: Array, size: int) -> Tap:
    inside = (place >= 0) & (place <= size - 1)
    index = jnp.clip(place, 0, size - 1).astype(jnp.int32)
    return Tap(index, weight, inside)


def _cubic_weight(distance: Array) -> Array:
    d, a = jnp.abs(distance), CUBIC
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return jnp.where(d <= 1, near, far)


def _axis_taps(place: Array, size: int, how: Sampling) -> list[Tap]:
    place = _denormalized(place, size, how.align_corners)
    if how.mode == BICUBIC:  # each neighbour is bounded for itself
        base = jnp.floor(place)
        offsets = [base + k for k in (-1, 0, 1, 2)]
        bounded = [_bounded(o, size, how) for o in offsets]
        rest = place - base  # far away, a neighbour and its offset are equal
        weights = [_cubic_weight(rest - k) for k in (-1, 0, 1, 2)]
        return [_tap(b, w, size) for b, w in zip(bounded, weights, strict=True)]
    place = _bounded(place, size, how)
    if how.mode == NEAREST:
        return [_tap(jnp.round(place), jnp.ones_like(place), size)]
    low = jnp.floor(place)
    return [_tap(low, low + 1 - place, size), _tap(low + 1, place - low, size)]


@lowers(
    aten.grid_sampler.default,
    aten.grid_sampler_2d.default,
    aten.grid_sampler_3d.default,
)
def grid_sampler(
    x: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Array:
    if x.size == 0:  # a gather from nothing has no shape in JAX
        return jnp.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    sizes, flat_grid = x.shape[2:], widen(grid)
    how = Sampling(interpolation_mode, padding_mode, align_corners, len(sizes))
    axes = [  # the grid lists the last axis first
        _axis_taps(flat_grid[..., -1 - d], n, how) for d, n in enumerate(sizes)
    ]
    table = jnp.moveaxis(widen(x), 1, -1).reshape(-1, x.shape[1])
    batch = jnp.arange(x.shape[0], dtype=jnp.int32)
    batch = batch.reshape(-1, *(1,) * (grid.ndim - 2))
    terms = (_term(table, batch, taps, sizes) for taps in product(*axes))
    return jnp.moveaxis(reduce(jnp.add, terms), -1, 1).astype(x.dtype)


def _term(
    table: Array, batch: Array, taps: Sequence[Tap], sizes: Sequence[int]
) -> Array:
    """Return the rows [N, ..., C] of one neighbour, weighted; 0 where it is outside.

    As in torch, a weight that is no number shows outside too, but in volumes.
    """
    row = batch
    for tap, size in zip(taps, sizes, strict=True):
        row = row * size + tap.place
    weight = reduce(jnp.multiply, [tap.weight for tap in taps])
    inside = reduce(jnp.logical_and, [tap.inside for tap in taps])
    weight, inside = weight[..., None], inside[..., None]
    value = jnp.take(table, row, axis=0, mode="clip")
    if len(sizes) == 2:
        return jnp.where(inside, value, 0) * weight
    return jnp.where(inside, value * weight, 0)


@lowers(aten.affine_grid_generator.default)
def affine_grid_generator(
    theta: Array, size: Sequence[int], align_corners: bool
) -> Array:
    spatial = size[2:]
    rows = [_base(n, align_corners, theta.dtype) for n in reversed(spatial)]
    axes = [
        jnp.broadcast_to(row.reshape(-1, *(1,) * dim), tuple(spatial))
        for dim, row in enumerate(rows)
    ]
    base = jnp.stack([*axes, jnp.ones(tuple(spatial), theta.dtype)], axis=-1)
    highest = lax.Precision.HIGHEST
    return jnp.einsum("...k,nik->n...i", base, theta, precision=highest)


def _base(size: int, align_corners: bool, dtype: jnp.dtype) -> Array:
    steps = jnp.arange(size).astype(dtype)
    if align_corners:
        if isinstance(size, int) and size == 1:
            return jnp.zeros((1,), dtype)
        return steps * 2 / (size - 1) - 1
    return (steps * 2 + 1) / size - 1
