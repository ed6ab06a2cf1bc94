"""Order along a dim: sort, argsort, topk, kthvalue, medians, mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.operands import (
    axis,
    highest,
    lowest,
    replaced,
    widen,
)
from tpu_export.converters.stablehlo.ops.ranking import (
    LiteRtUnsupportedError as LiteRtUnsupportedError,
)
from tpu_export.converters.stablehlo.ops.ranking import ranked
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Pair: TypeAlias = tuple[Array, Array]


def _sorted(x: Array, dim: int, descending: bool) -> Pair:
    """Stable; NaN counts as the largest, as in torch."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    dim = axis(dim, x.ndim)
    if context.current().target == "litert":
        return ranked(x, dim, descending)
    places = lax.broadcasted_iota(jnp.int32, x.shape, dim)
    if descending:  # reversing before and after keeps equals in order
        x, places = lax.rev(x, (dim,)), lax.rev(places, (dim,))
    values, order = lax.sort((x, places), dimension=dim, is_stable=True, num_keys=1)
    if descending:
        values, order = lax.rev(values, (dim,)), lax.rev(order, (dim,))
    return values, order.astype(jnp.int64)


@lowers(aten.sort.default)
def sort(x: Array, dim: int = -1, descending: bool = False) -> Pair:
    return _sorted(x, dim, descending)


@lowers(aten.sort.stable)
def sort_stable(
    x: Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Pair:
    return _sorted(x, dim, descending)


@lowers(aten.argsort.default)
def argsort(x: Array, dim: int = -1, descending: bool = False) -> Array:
    return _sorted(x, dim, descending)[1]


@lowers(aten.argsort.stable)
def argsort_stable(
    x: Array, *, stable: bool, dim: int = -1, descending: bool = False
) -> Array:
    return _sorted(x, dim, descending)[1]


@lowers(aten.msort.default)
def msort(x: Array) -> Array:
    return _sorted(x, 0, False)[0]


def _head(x: Array, k: int, dim: int) -> Array:
    return lax.slice_in_dim(x, 0, k, axis=dim)


@lowers(aten.topk.default)
def topk(
    x: Array,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Pair:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    dim = axis(dim, x.ndim)
    if not largest or x.dtype == bool or not isinstance(k, int):
        values, order = _sorted(x, dim, largest)
        return _head(values, k, dim), _head(order, k, dim)
    # XLA's order puts NaN of either sign at either end, and loses it in bfloat16.
    wide = jnp.moveaxis(widen(x), dim, -1)
    if jnp.issubdtype(x.dtype, jnp.floating):
        wide = replaced(wide, wide != wide, jnp.nan)
    values, order = lax.top_k(wide, k)
    values = values.astype(x.dtype)
    values, order = jnp.moveaxis(values, -1, dim), jnp.moveaxis(order, -1, dim)
    return values, order.astype(jnp.int64)


MAX_ROUNDS = 64


@lowers(aten.topk.default, target="litert")
def topk_rounds(
    x: Array,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> Pair:
    """Take the best, mask it, k times: plain ops only. Many are ranked instead."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    dim = axis(dim, x.ndim)
    if not isinstance(k, int):
        message = "k is no number"  # the refusal says where it comes from
        raise TypeError(message)
    if k > MAX_ROUNDS:
        whole = _sorted(x, dim, largest)
        return _head(whole[0], k, dim), _head(whole[1], k, dim)
    if jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize < 4:
        wide = topk_rounds(x.astype(jnp.int32), k, dim, largest, sorted)
        return wide[0].astype(x.dtype), wide[1]  # LiteRT has extremes of 32 bits
    dim = axis(dim, x.ndim)
    places = lax.broadcasted_iota(jnp.int32, x.shape, dim)
    free = jnp.ones(x.shape, bool)
    values, orders = [], []
    for _ in range(k):
        value, order = _best(x, free, places, dim, largest)
        free = free & (places != order)
        values.append(value)
        orders.append(order)
    order = lax.concatenate(orders, dim).astype(jnp.int64)
    return lax.concatenate(values, dim), order


def _best(x: Array, free: Array, places: Array, dim: int, largest: bool) -> Pair:
    """Return the best free value and its first place. NaN counts as the largest.

    LiteRT's extremes lose NaN, so that no value may depend on it.
    """
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    filler = jnp.asarray(lowest(x.dtype) if largest else highest(x.dtype))
    reduce = jnp.max if largest else jnp.min
    plain = free & (x == x) if floating else free
    value = reduce(jnp.where(plain, x, filler), dim, keepdims=True)
    hit = plain & (x == value)
    if floating:
        odd = free & (x != x)
        first = jnp.sum(odd if largest else plain, dim, dtype=jnp.int32, keepdims=True)
        take = first > 0 if largest else first == 0
        value = jnp.where(take, jnp.nan, value)
        hit = (take & odd) | (~take & hit)
    size = x.shape[dim]
    order = jnp.min(jnp.where(hit, places, size), dim, keepdims=True)
    return value, jnp.minimum(order, size - 1)


@lowers(aten.kthvalue.default)
def kthvalue(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    return _nth(x, k - 1, dim, keepdim)


def _nth(x: Array, n: Any, dim: int, keepdim: bool) -> Pair:
    values, order = _sorted(x, dim, False)
    if not x.ndim:
        return values, order
    pair = tuple(
        lax.dynamic_slice_in_dim(y, n, 1, axis(dim, x.ndim)) for y in (values, order)
    )
    value, place = (y if keepdim else jnp.squeeze(y, dim) for y in pair)
    return value, place


@lowers(aten.median.dim)
def median_dim(x: Array, dim: int, keepdim: bool = False) -> Pair:
    """The lower of two middles; any NaN wins, with its first place."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    dim = axis(dim, x.ndim)
    value, place = _nth(x, (x.shape[dim] - 1) // 2, dim, keepdim)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return value, place
    broken = jnp.any(x != x, dim, keepdims=keepdim)
    first = jnp.argmax(x != x, dim, keepdims=keepdim).astype(jnp.int64)
    return jnp.where(broken, jnp.nan, value).astype(x.dtype), jnp.where(
        broken, first, place
    )


def _middle(x: Array, along: Callable[[Array, int], Pair]) -> Array:
    """Along all elements; of none it is NaN, cast to the dtype as torch's CPU casts it."""
    floating = jnp.issubdtype(x.dtype, jnp.floating)
    number = lowest(x.dtype) if x.dtype.itemsize > 2 else 0
    nothing = jnp.asarray(jnp.nan if floating else number, x.dtype)
    flat = x.reshape(-1)
    missing = jax.core.max_dim(flat.shape[0], 1) - flat.shape[0]
    return along(lax.pad(flat, nothing, [(0, missing, 0)]), 0)[0]


@lowers(aten.median.default)
def median(x: Array) -> Array:
    return _middle(x, median_dim)


@lowers(aten.nanmedian.dim)
def nanmedian_dim(x: Array, dim: int, keepdim: bool = False) -> Pair:
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    dim = axis(dim, x.ndim)
    values, order = _sorted(x, dim, False)
    present = jnp.sum(x == x, dim, jnp.int32, keepdims=True)
    middle = jnp.maximum((present - 1) // 2, 0)
    pair = (jnp.take_along_axis(y, middle, dim) for y in (values, order))
    value, place = (y if keepdim else jnp.squeeze(y, dim) for y in pair)
    return value, place


@lowers(aten.nanmedian.default)
def nanmedian(x: Array) -> Array:
    return _middle(x, nanmedian_dim)


@lowers(aten.mode.default)
def mode(x: Array, dim: int = -1, keepdim: bool = False) -> Pair:
    """The smallest of the most frequent values, at its last place."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    dim = axis(dim, x.ndim)
    values, order = _sorted(x, dim, False)
    last = jnp.moveaxis(values, dim, -1)
    counts = jnp.sum(last[..., :, None] == last[..., None, :], -1, jnp.int32)
    best = jnp.argmax(counts, -1, keepdims=True)
    final = best + jnp.take_along_axis(counts, best, -1) - 1
    pair = (
        jnp.take_along_axis(jnp.moveaxis(y, dim, -1), final, -1)
        for y in (values, order)
    )
    value, place = (
        jnp.moveaxis(y, -1, dim) if keepdim else jnp.squeeze(y, -1) for y in pair
    )
    return value, place
