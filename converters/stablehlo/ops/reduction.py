"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import DTYPES, axes, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _accumulated(
    function: Callable[..., Array],
    x: Array,
    dim: Any,
    keepdim: bool,
    dtype: torch.dtype | None,
    default: Any,
) -> Array:
    target = DTYPES[dtype] if dtype else default
    wide = widen(x.astype(target))
    return function(wide, axis=axes(dim, x.ndim), keepdims=keepdim).astype(target)


def _sum_dtype(x: Array) -> Any:
    return x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.int64


@lowers(aten.sum.dim_IntList)
def sum_(
    x: Array,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Array:
    return _accumulated(jnp.sum, x, dim, keepdim, dtype, _sum_dtype(x))


@lowers(aten.sum.default)
def sum_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    return sum_(x, dtype=dtype)


@lowers(aten.mean.dim)
def mean(
    x: Array,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Array:
    return _accumulated(jnp.mean, x, dim, keepdim, dtype, x.dtype)


@lowers(aten.mean.default)
def mean_all(x: Array, *, dtype: torch.dtype | None = None) -> Array:
    return mean(x, dtype=dtype)


@lowers(aten.amax.default)
def amax(x: Array, dim: Sequence[int] = (), keepdim: bool = False) -> Array:
    return jnp.max(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@lowers(aten.amin.default)
def amin(x: Array, dim: Sequence[int] = (), keepdim: bool = False) -> Array:
    return jnp.min(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@lowers(aten.all.default)
def all_(x: Array) -> Array:
    return jnp.all(x)


@lowers(aten.any.default)
def any_(x: Array) -> Array:
    return jnp.any(x)


@lowers(aten.argmax.default)
def argmax(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return jnp.argmax(x, axis=dim, keepdims=keepdim).astype(jnp.int64)
