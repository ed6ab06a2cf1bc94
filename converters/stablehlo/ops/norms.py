"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import axes, cast, widen
from tpu_export.converters.stablehlo.ops.distance import count_apart
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Dims: TypeAlias = int | Sequence[int] | None


def _norm(x: Array, p: float, dims: Sequence[int], keepdim: bool) -> Array:
    size = jnp.abs(x)
    if p == math.inf:
        return jnp.max(size, dims, keepdims=keepdim)
    if p == -math.inf:
        return jnp.min(size, dims, keepdims=keepdim)
    if p == 0:
        return jnp.sum(size != 0, dims, size.dtype, keepdims=keepdim)
    if p == 1:
        return jnp.sum(size, dims, keepdims=keepdim)
    if p == 2:
        return jnp.sqrt(jnp.sum(size * size, dims, keepdims=keepdim))
    return jnp.sum(size**p, dims, keepdims=keepdim) ** (1 / p)


@lowers(aten.linalg_vector_norm.default)
def vector_norm(
    x: Array,
    ord: float = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Array:
    x = x if dtype is None else cast(x, dtype)
    y = _norm(widen(x), ord, axes(dim, x.ndim), keepdim)
    return y.astype(jnp.real(x).dtype)


@lowers(aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype)
def norm_dims(
    x: Array,
    p: float | None,
    dim: Dims,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Array:
    return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype=dtype)


@lowers(aten.norm.Scalar, aten.norm.ScalarOpt_dtype)
def norm(x: Array, p: float | None = 2, *, dtype: torch.dtype | None = None) -> Array:
    return norm_dims(x, p, None, dtype=dtype)


@lowers(aten.frobenius_norm.dim)
def frobenius_norm(x: Array, dim: Dims, keepdim: bool = False) -> Array:
    return vector_norm(x, 2, dim, keepdim)


@lowers(aten.dist.default)
def dist(x: Array, other: Array, p: float = 2) -> Array:
    return vector_norm(x - other, p)


@lowers(aten._pdist_forward.default, aten.pdist.default)
def pdist(x: Array, p: float = 2) -> Array:
    row, column = np.triu_indices(x.shape[0], 1)
    apart = x[row] - x[column]
    return count_apart(apart) if p == 0 else _norm(apart, p, (1,), keepdim=False)
