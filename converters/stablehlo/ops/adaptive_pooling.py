"""Adaptive pooling: the output size is given, windows may overlap and differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import product

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.operands import spread, widen
from tpu_export.converters.stablehlo.ops.scatter_free import write_along
from tpu_export.converters.stablehlo.registry import lowers
from tpu_export.converters.stablehlo.weighted import Weights, weighted_sum

aten = torch.ops.aten

# Up to this many windows are slices of their own; more are one product.
SLICES = 32


def _bounds(size: int, out: int) -> Iterator[tuple[int, int]]:
    return ((i * size // out, -(-(i + 1) * size // out)) for i in range(out))


def _mean_axis(x: Array, dim: int, out: int) -> Array:
    """Average one axis into `out` windows; the mean of all axes is separable."""
    size = x.shape[dim]
    if size == out:
        return x
    if size % out == 0:
        split = (*x.shape[:dim], out, size // out, *x.shape[dim + 1 :])
        return jnp.mean(x.reshape(split), axis=dim + 1)
    if isinstance(size, int) and out <= SLICES:
        windows = _bounds(size, out)
        parts = (lax.slice_in_dim(x, a, b, axis=dim) for a, b in windows)
        means = [jnp.mean(p, axis=dim, keepdims=True) for p in parts]
        return jnp.concatenate(means, axis=dim)
    return _mean_by_product(x, dim, out)


def _mean_by_product(x: Array, dim: int, out: int) -> Array:
    size = x.shape[dim]
    rows, cols = jnp.arange(out)[:, None], jnp.arange(size)[None, :]
    member = (cols >= rows * size // out) & (cols < -(-(rows + 1) * size // out))
    share = 1 / jnp.sum(member, axis=1, keepdims=True)
    return weighted_sum(x, dim, Weights.of([(member, share)]))


def _avg(x: Array, output_size: Sequence[int], *, rank: int) -> Array:
    sizes = dict(enumerate(spread(output_size, rank), start=x.ndim - rank))
    whole = tuple(d for d, out in sizes.items() if isinstance(out, int) and out == 1)
    y = widen(x)
    y = jnp.mean(y, axis=whole, keepdims=True) if whole else y  # one op for all of them
    for dim, out in sizes.items():
        y = y if dim in whole else _mean_axis(y, dim, out)
    return y.astype(x.dtype)


lowers(aten.adaptive_avg_pool1d.default)(partial(_avg, rank=1))
lowers(aten.adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d.default)(
    partial(_avg, rank=2)
)
lowers(aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default)(
    partial(_avg, rank=3)
)


def _max(x: Array, output_size: Sequence[int], *, rank: int) -> tuple[Array, Array]:
    sizes = x.shape[-rank:]
    outs = spread(output_size, rank)
    count = reduce(lambda a, b: a * b, sizes)
    places = jnp.broadcast_to(lax.iota(jnp.int64, count).reshape(sizes), x.shape)
    lead = [(0, n) for n in x.shape[:-rank]]
    axes = [list(_bounds(n, o)) for n, o in zip(sizes, outs, strict=True)]
    best = [_first_max(x, places, [*lead, *window], rank) for window in product(*axes)]
    shape = (*x.shape[:-rank], *outs)
    values, indices = (
        jnp.stack(parts, axis=-1).reshape(shape) for parts in zip(*best, strict=True)
    )
    return values, indices


def _first_max(
    x: Array, places: Array, window: Sequence[tuple[int, int]], rank: int
) -> tuple[Array, Array]:
    """Return the largest element of a window and its first place; of NaN it is the last."""
    starts, stops = zip(*window, strict=True)
    part, where = (lax.slice(t, starts, stops) for t in (x, places))
    axes = tuple(range(x.ndim - rank, x.ndim))
    top = jnp.max(part, axis=axes, keepdims=True)
    none = np.int64(np.iinfo(np.int32).max)
    first = jnp.min(jnp.where(part == top, where, none), axis=axes)
    last = jnp.max(jnp.where(part != part, where, -1), axis=axes)
    return jnp.max(part, axis=axes), jnp.where(last >= 0, last, first)


lowers(aten.adaptive_max_pool1d.default)(partial(_max, rank=1))
lowers(aten.adaptive_max_pool2d.default)(partial(_max, rank=2))
lowers(aten.adaptive_max_pool3d.default)(partial(_max, rank=3))


def _unpool(x: Array, indices: Array, output_size: Sequence[int], rank: int) -> Array:
    lead = x.shape[: x.ndim - rank]
    planes = reduce(lambda a, b: a * b, lead, 1)
    size = reduce(lambda a, b: a * b, output_size)
    rows = jnp.arange(planes)[:, None]
    places, values = (t.reshape(planes, -1) for t in (indices, x))
    y = jnp.zeros((planes, size), x.dtype)
    if context.current().target == "litert":
        y = write_along(y, 1, places, values, "set")
    else:
        y = y.at[rows, places].set(values)
    return y.reshape(*lead, *output_size)


@lowers(aten.max_unpool2d.default)
def max_unpool2d(x: Array, indices: Array, output_size: Sequence[int]) -> Array:
    return _unpool(x, indices, output_size, 2)


@lowers(aten.max_unpool3d.default)
def max_unpool3d(
    x: Array,
    indices: Array,
    output_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> Array:
    return _unpool(x, indices, output_size, 3)
