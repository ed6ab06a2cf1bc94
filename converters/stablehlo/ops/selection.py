"""Pointwise choice and blends of three tensors: clamp, where, lerp, addcmul, masks."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import (
    Number,
    Operand,
    cast,
    promote,
    result_type,
    widen,
)
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.clamp.default, aten.clamp.Tensor, aten.clip.default, aten.clip.Tensor)
def clamp(x: Array, min: Operand | None = None, max: Operand | None = None) -> Array:
    bounds = [b for b in (min, max) if b is not None]
    dtype = result_type(x, *bounds)
    x = cast(x, dtype)
    if min is not None:
        x = jnp.maximum(x, cast(min, dtype))
    return x if max is None else jnp.minimum(x, cast(max, dtype))


@lowers(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(x: Array, min: Operand) -> Array:
    return clamp(x, min)


@lowers(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(x: Array, max: Operand) -> Array:
    return clamp(x, None, max)


@lowers(
    aten.where.self,
    aten.where.ScalarOther,
    aten.where.ScalarSelf,
    aten.where.Scalar,
)
def where(condition: Array, x: Operand, y: Operand) -> Array:
    x, y = promote(x, y)
    return jnp.where(condition.astype(bool), x, y)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Array, mask: Array, value: Operand) -> Array:
    return jnp.where(mask, cast(value, x.dtype), x)


@lowers(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(x: Array, end: Array, weight: Operand) -> Array:
    a, b = widen(x), widen(end)
    w = cast(weight, a.dtype)
    small = jnp.abs(w) < 0.5
    return jnp.where(small, a + w * (b - a), b - (b - a) * (1 - w)).astype(x.dtype)


@lowers(aten.addcmul.default)
def addcmul(x: Array, a: Array, b: Array, *, value: Number = 1) -> Array:
    x, a, b = promote(x, a, b)
    wide = widen(x)
    product = widen(a) * widen(b)
    product = product if value == 1 else product * cast(value, wide.dtype)
    return (wide + product).astype(x.dtype)


@lowers(aten.addcdiv.default)
def addcdiv(x: Array, a: Array, b: Array, *, value: Number = 1) -> Array:
    x, a, b = promote(x, a, b)
    wide = widen(x)
    return (wide + cast(value, wide.dtype) * widen(a) / widen(b)).astype(x.dtype)


@lowers(aten.copy.default)
def copy(x: Array, src: Array, non_blocking: bool = False) -> Array:
    return jnp.broadcast_to(cast(src, np.dtype(x.dtype)), x.shape)


@lowers(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Array, value: Operand) -> Array:
    return jnp.full(x.shape, cast(value, x.dtype), x.dtype)
