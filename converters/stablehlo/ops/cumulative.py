"""Running sums, products and extremes; differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.operands import (
    axis,
    cast,
    floating,
    promote,
    widen,
)
from tpu_export.converters.stablehlo.ops.binary import logaddexp
from tpu_export.converters.stablehlo.ops.reduction import sum_dims
from tpu_export.converters.stablehlo.registry import lowers
from tpu_export.converters.stablehlo.running import running

aten = torch.ops.aten


def _running(
    function: Callable[..., Array], x: Array, dim: int, dtype: torch.dtype | None
) -> Array:
    if dtype is not None:
        x = cast(x, dtype)
    elif not jnp.issubdtype(x.dtype, jnp.inexact):
        x = x.astype(jnp.int64)
    if not x.ndim:
        return x
    return running(function, widen(x), axis(dim, x.ndim)).astype(x.dtype)


@lowers(aten.cumsum.default)
def cumsum(x: Array, dim: int, *, dtype: torch.dtype | None = None) -> Array:
    return _running(lax.cumsum, x, dim, dtype)


@lowers(aten.cumprod.default)
def cumprod(x: Array, dim: int, *, dtype: torch.dtype | None = None) -> Array:
    return _running(lax.cumprod, x, dim, dtype)


@lowers(aten.logcumsumexp.default, aten._logcumsumexp.default)
def logcumsumexp(x: Array, dim: int) -> Array:
    # lax wraps the imaginary part, torch does not; LiteRT reduces windows by one op only
    if jnp.iscomplexobj(x) or context.current().target == "litert":
        if not x.ndim:
            return x
        wide: Array = lax.associative_scan(logaddexp, widen(x), axis=axis(dim, x.ndim))
        return wide.astype(x.dtype)
    return _running(lax.cumlogsumexp, x, dim, None)


def _extreme(better: Callable[[Array, Array], Array], x: Array, dim: int) -> Any:
    """The last of equals wins, and the first NaN stays, as in torch."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int64)
    dim = axis(dim, x.ndim)
    place = lax.broadcasted_iota(jnp.int64, x.shape, dim)
    if not isinstance(x.shape[dim], int):  # associative_scan takes constant sizes only
        function = lax.cummax if better is jnp.greater_equal else lax.cummin
        extremes = running(function, x, dim)
        new = (x == extremes) | (x != x)
        return extremes, running(lax.cummax, jnp.where(new, place, 0), dim)

    def later(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        take = (b[0] != b[0]) | ((a[0] == a[0]) & better(b[0], a[0]))
        return jnp.where(take, b[0], a[0]), jnp.where(take, b[1], a[1])

    return lax.associative_scan(later, (x, place), axis=dim)


@lowers(aten.cummax.default)
def cummax(x: Array, dim: int) -> Any:
    return _extreme(jnp.greater_equal, x, dim)


@lowers(aten.cummin.default)
def cummin(x: Array, dim: int) -> Any:
    return _extreme(jnp.less_equal, x, dim)


@lowers(aten.diff.default)
def diff(
    x: Array,
    n: int = 1,
    dim: int = -1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    dim = axis(dim, x.ndim)
    parts = [p for p in (prepend, x, append) if p is not None]
    x = lax.concatenate(promote(*parts), dim) if len(parts) > 1 else x
    for _ in range(n):
        high = lax.slice_in_dim(x, 1, None, axis=dim)
        low = lax.slice_in_dim(x, 0, -1, axis=dim)
        x = high ^ low if x.dtype == bool else high - low
    return x


def _areas(y: Array, widths: Array | None, dim: int) -> Array:
    """Sum widths * (y[i] + y[i + 1]); integers wrap in their own dtype first, as in torch."""
    dim = axis(dim, y.ndim)
    low = lax.slice_in_dim(y, 0, max(y.shape[dim] - 1, 0), axis=dim)
    pairs = low + lax.slice_in_dim(y, min(1, y.shape[dim]), None, axis=dim)
    terms = pairs if widths is None else jnp.multiply(*promote(pairs, widths))
    exact = jnp.issubdtype(terms.dtype, jnp.inexact)
    total = jnp.sum(terms if exact else terms.astype(jnp.int64), axis=dim)
    return floating(total)[0]


@lowers(aten.trapezoid.dx, aten.trapz.dx)
def trapezoid(y: Array, *, dx: float = 1, dim: int = -1) -> Array:
    dim = axis(dim, y.ndim)
    if not y.shape[dim]:
        return _areas(y, None, dim)
    # All but half of the ends, in these steps: of infinities it is NaN, as in torch.
    ends = lax.index_in_dim(y, 0, dim, keepdims=False) + lax.index_in_dim(
        y, -1, dim, keepdims=False
    )
    (total,), (ends,) = floating(sum_dims(y, dim)), floating(ends)
    return (total - ends * cast(0.5, ends.dtype)) * cast(dx, total.dtype)


@lowers(aten.trapezoid.x, aten.trapz.x)
def trapezoid_x(y: Array, x: Array, *, dim: int = -1) -> Array:
    if not y.shape[dim]:
        return _areas(y, None, dim)
    if x.ndim == 1:  # one sequence of places for all
        shape = [1] * y.ndim
        shape[dim] = x.shape[0]
        x = x.reshape(shape)
        along = dim
    else:
        along = axis(dim, y.ndim) - y.ndim
    return _areas(y, jnp.diff(x, axis=along), dim) / 2
