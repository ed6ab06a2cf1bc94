"""Reductions: sums, extremes, moments, norms; `dim=[]` means all dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import (
    Number,
    axes,
    axis,
    cast,
    widen,
)
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Dims: TypeAlias = int | Sequence[int] | None


def _summand(x: Array, dtype: torch.dtype | None) -> Array:
    """Narrow integers and booleans are summed as int64."""
    if dtype is not None:
        return cast(x, dtype)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.int64)


@lowers(aten.sum.dim_IntList)
def sum_dims(
    x: Array, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    x = _summand(x, dtype)
    total = jnp.sum(widen(x), axes(dim, x.ndim), keepdims=keepdim)
    return total.astype(x.dtype)


@lowers(aten.sum.default)
def sum_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    return sum_dims(x, None, dtype=dtype)


@lowers(aten.nansum.default)
def nansum(
    x: Array,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Array:
    return sum_dims(jnp.where(x != x, 0, x), dim, keepdim, dtype=dtype)


def _count(x: Array, dims: Sequence[int]) -> Any:
    return math.prod(x.shape[d] for d in dims)


@lowers(aten.mean.dim)
def mean_dims(
    x: Array, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    x = x if dtype is None else cast(x, dtype)
    dims = axes(dim, x.ndim)
    wide = widen(x)
    total = jnp.sum(wide, dims, keepdims=keepdim)
    return (total / cast(_count(x, dims), total.dtype)).astype(x.dtype)


@lowers(aten.mean.default)
def mean(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    return mean_dims(x, None, dtype=dtype)


@lowers(aten.nanmean.default)
def nanmean(
    x: Array,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Array:
    x = x if dtype is None else cast(x, dtype)
    total = nansum(x, dim, keepdim)
    return total / jnp.sum(x == x, axes(dim, x.ndim), x.dtype, keepdims=keepdim)


@lowers(aten.prod.default)
def prod(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    x = _summand(x, dtype)
    return jnp.prod(widen(x)).astype(x.dtype)


@lowers(aten.prod.dim_int)
def prod_dim(
    x: Array, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Array:
    x = _summand(x, dtype)
    return jnp.prod(widen(x), axes(dim, x.ndim), keepdims=keepdim).astype(x.dtype)


@lowers(aten.amax.default)
def amax(x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    return jnp.max(x, axes(dim, x.ndim), keepdims=keepdim)


@lowers(aten.amin.default)
def amin(x: Array, dim: Dims = (), keepdim: bool = False) -> Array:
    return jnp.min(x, axes(dim, x.ndim), keepdims=keepdim)


@lowers(aten.aminmax.default)
def aminmax(
    x: Array, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Array, Array]:
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


@lowers(aten.max.default)
def max_all(x: Array) -> Array:
    return jnp.max(x)


@lowers(aten.min.default)
def min_all(x: Array) -> Array:
    return jnp.min(x)


def _arg(
    function: Callable[..., Array], x: Array, dim: int | None, keepdim: bool
) -> Array:
    """The first place wins; NaN beats all, in torch as in XLA."""
    x, rank = (x.astype(jnp.int8) if x.dtype == bool else x), x.ndim
    if not rank:
        return jnp.zeros((), jnp.int64)
    flat, d = (x.reshape(-1), 0) if dim is None else (x, axis(dim, rank))
    place = function(flat, d, jnp.int32).astype(jnp.int64)
    if not keepdim:
        return place
    return place.reshape((1,) * rank) if dim is None else jnp.expand_dims(place, d)


@lowers(aten.argmax.default)
def argmax(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _arg(lax.argmax, x, dim, keepdim)


@lowers(aten.argmin.default)
def argmin(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _arg(lax.argmin, x, dim, keepdim)


@lowers(aten.max.dim)
def max_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return amax(x, dim, keepdim), argmax(x, dim, keepdim)


@lowers(aten.min.dim)
def min_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return amin(x, dim, keepdim), argmin(x, dim, keepdim)


@lowers(aten.any.default, aten.any.dim, aten.any.dims)
def any_of(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    found = jnp.any(x != 0, axes(dim, x.ndim), keepdims=keepdim)
    return found.astype(jnp.uint8) if x.dtype == jnp.uint8 else found


@lowers(aten.all.default, aten.all.dim, aten.all.dims)
def all_of(x: Array, dim: Dims = None, keepdim: bool = False) -> Array:
    found = jnp.all(x != 0, axes(dim, x.ndim), keepdims=keepdim)
    return found.astype(jnp.uint8) if x.dtype == jnp.uint8 else found


@lowers(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def count_nonzero(x: Array, dim: Dims = None) -> Array:
    return jnp.sum(x != 0, axes(dim, x.ndim), jnp.int64)


def _moments(
    x: Array, dim: Dims, correction: Number | None, keepdim: bool
) -> tuple[Array, Array]:
    """Return variance and mean, in float32 for half types."""
    dims, wide = axes(dim, x.ndim), widen(x)
    count = _count(x, dims)
    real = jnp.real(wide).dtype
    center = jnp.sum(wide, dims, keepdims=True) / cast(count, real)
    squares = (
        jnp.abs(wide - center) ** 2 if jnp.iscomplexobj(x) else _square(wide - center)
    )
    free = jnp.maximum(cast(count, real) - (1 if correction is None else correction), 0)
    variance = jnp.sum(squares, dims, keepdims=keepdim) / free
    return variance, center if keepdim else lax.squeeze(center, dims)


def _square(x: Array) -> Array:
    return x * x


def _real_dtype(x: Array) -> Any:
    return jnp.real(x).dtype


@lowers(aten.var.correction)
def var(
    x: Array,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> Array:
    return _moments(x, dim, correction, keepdim)[0].astype(_real_dtype(x))


@lowers(aten.std.correction)
def std(
    x: Array,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> Array:
    return jnp.sqrt(_moments(x, dim, correction, keepdim)[0]).astype(_real_dtype(x))


@lowers(aten.var_mean.correction)
def var_mean(
    x: Array,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[Array, Array]:
    variance, center = _moments(x, dim, correction, keepdim)
    return variance.astype(_real_dtype(x)), center.astype(x.dtype)


@lowers(aten.std_mean.correction)
def std_mean(
    x: Array,
    dim: Dims = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[Array, Array]:
    variance, center = _moments(x, dim, correction, keepdim)
    return jnp.sqrt(variance).astype(_real_dtype(x)), center.astype(x.dtype)


def _unbiased(rule: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    def over_all(x: Array, unbiased: bool = True) -> Any:
        return rule(x, None, correction=int(unbiased))

    def over_dims(
        x: Array, dim: Dims, unbiased: bool = True, keepdim: bool = False
    ) -> Any:
        return rule(x, dim, correction=int(unbiased), keepdim=keepdim)

    return over_all, over_dims


for _name, _rule in (
    ("var", var),
    ("std", std),
    ("var_mean", var_mean),
    ("std_mean", std_mean),
):
    _packet = getattr(aten, _name)
    _all, _dims = _unbiased(_rule)
    lowers(_packet.default)(_all)
    lowers(_packet.dim)(_dims)


@lowers(aten.logsumexp.default, aten.special_logsumexp.default)
def logsumexp(x: Array, dim: Dims, keepdim: bool = False) -> Array:
    x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)
    total = jax.nn.logsumexp(widen(x), axes(dim, x.ndim), keepdims=keepdim)
    return jnp.asarray(total).astype(x.dtype)
