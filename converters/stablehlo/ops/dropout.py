"""Dropout: the identity in eval, a seeded mask in training."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

# The value that an infinitely negative input of SELU takes: what alpha dropout drops to.
ALPHA = 1.7580993408473766


def _keep(shape: tuple[int, ...], p: float) -> Array:
    return jax.random.bernoulli(current().next_key(), 1 - p, shape)


def _channels(x: Array) -> tuple[int, ...]:
    """Return the shape that drops whole channels."""
    return (*x.shape[:2], *(1 for _ in x.shape[2:]))


@lowers(aten.dropout.default)
def dropout(x: Array, p: float, train: bool) -> Array:
    return _drop(x, p, x.shape) if train else x


@lowers(aten.feature_dropout.default)
def feature_dropout(x: Array, p: float, train: bool) -> Array:
    return _drop(x, p, _channels(x)) if train else x


def _drop(x: Array, p: float, shape: tuple[int, ...]) -> Array:
    if p in (0, 1):
        return x if p == 0 else jnp.zeros_like(x)
    return jnp.where(_keep(shape, p), x / (1 - p), 0).astype(x.dtype)


@lowers(aten.native_dropout.default)
def native_dropout(x: Array, p: float, train: bool | None) -> tuple[Array, Array]:
    if train is False or p == 0:
        return x, jnp.ones(x.shape, bool)
    keep = _keep(x.shape, p)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return jnp.where(keep, x * scale, 0).astype(x.dtype), keep


@lowers(aten.alpha_dropout.default)
def alpha_dropout(x: Array, p: float, train: bool) -> Array:
    return _alpha_drop(x, p, x.shape) if train else x


@lowers(aten.feature_alpha_dropout.default)
def feature_alpha_dropout(x: Array, p: float, train: bool) -> Array:
    return _alpha_drop(x, p, _channels(x)) if train else x


def _alpha_drop(x: Array, p: float, shape: tuple[int, ...]) -> Array:
    if p in (0, 1):
        return x if p == 0 else jnp.zeros_like(x)
    scale = ((ALPHA**2 * p + 1) * (1 - p)) ** -0.5
    dropped: Array = jnp.where(_keep(shape, p), x, -ALPHA)
    shifted: Array = dropped * scale + ALPHA * scale * p
    return shifted.astype(x.dtype)
