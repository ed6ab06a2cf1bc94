"""Distances and similarities between vectors."""

from __future__ import annotations

import math

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import floating, promote, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

# From this many rows on torch computes Euclidean distances by a product.
PRODUCT_ROWS = 25


def _norm(gap: Array, p: float) -> Array:
    gap = jnp.abs(gap)
    if p == 0:
        return jnp.sum(gap != 0, axis=-1).astype(gap.dtype)
    if p == 1:
        return jnp.sum(gap, axis=-1)
    if math.isinf(p):
        return jnp.max(gap, axis=-1, initial=0)
    if p == 2:
        return jnp.sqrt(jnp.sum(gap * gap, axis=-1))
    return jnp.sum(gap**p, axis=-1) ** (1 / p)


@lowers(aten.cosine_similarity.default)
def cosine_similarity(x: Array, y: Array, dim: int = 1, eps: float = 1e-8) -> Array:
    x, y = jnp.broadcast_arrays(*floating(x, y))
    if x.ndim == 0:
        return cosine_similarity(x[None], y[None], 0, eps)
    a, b = widen(x), widen(y)

    def unit(v: Array) -> Array:
        length = jnp.sqrt(jnp.sum(v * v, axis=dim, keepdims=True))
        return v / jnp.maximum(length, jnp.asarray(eps, x.dtype).astype(length.dtype))

    return jnp.sum(unit(a) * unit(b), axis=dim).astype(x.dtype)


@lowers(aten.pairwise_distance.default)
def pairwise_distance(
    x: Array, y: Array, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Array:
    x, y = promote(x, y)
    (apart,) = floating(widen(x) - widen(y))  # integers wrap first, as in torch
    (result,) = floating(x)
    distance = _norm(apart + eps, p).astype(jnp.real(result).dtype)
    return distance[..., None] if keepdim else distance


def _by_product(x: Array, y: Array) -> Array:
    dot = jnp.matmul(x, y.swapaxes(-1, -2), precision=lax.Precision.HIGHEST)
    squares = (
        jnp.sum(x * x, axis=-1)[..., :, None] + jnp.sum(y * y, axis=-1)[..., None, :]
    )
    return jnp.sqrt(jnp.maximum(squares - 2 * dot, 0))


def _many(rows: int) -> bool:
    return isinstance(rows, int) and rows > PRODUCT_ROWS


@lowers(aten.cdist.default, aten._cdist_forward.default)
def cdist(x: Array, y: Array, p: float = 2.0, compute_mode: int | None = None) -> Array:
    many = _many(x.shape[-2]) or _many(y.shape[-2])
    if p == 2 and (compute_mode == 1 or (not compute_mode and many)):
        return _by_product(x, y)
    apart = x[..., :, None, :] - y[..., None, :, :]
    return count_apart(apart) if p == 0 else _norm(apart, p)


def count_apart(gap: Array) -> Array:
    """Return how many elements of the last axis are not 0; of a NaN it is NaN."""
    return jnp.sum(jnp.minimum(jnp.ceil(jnp.abs(gap)), 1), axis=-1)


@lowers(aten._euclidean_dist.default)
def euclidean_dist(x: Array, y: Array) -> Array:
    return _by_product(x, y)
