"""Scale and zero point from the values at hand, as dynamic quantization takes them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from jax import Array

from tpu_export.converters.stablehlo.registry import lowers

quantized = torch.ops.quantized_decomposed

_INT8_LOW, _INT8_HIGH, _UINT8_MIDDLE = -128, 127, 128
_LEAST_PER_TOKEN = 1e-5


def _range(x: Array) -> tuple[Array, Array]:
    """Return the least and the greatest value, 0 among them."""
    return jnp.minimum(x.min(), 0), jnp.maximum(x.max(), 0)


def _as_torch(scale: Array, zero_point: Array) -> tuple[Array, Array]:
    return scale.astype(jnp.float64), zero_point.astype(jnp.int64)


@lowers(quantized.choose_qparams.tensor)
def choose_qparams(
    input: Array, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Array, Array]:
    low, high = _range(input)
    scale = (high - low) / jnp.asarray(quant_max - quant_min, input.dtype)
    scale = jnp.maximum(scale, jnp.float32(eps))
    zero = quant_min - jnp.round(low / scale).astype(jnp.int32)
    zero = jnp.clip(zero, quant_min, quant_max)
    return _as_torch(scale.reshape(1), zero.reshape(1))


@lowers(quantized.choose_qparams_symmetric.tensor)
def choose_qparams_symmetric(
    input: Array, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Array, Array]:
    low, high = _range(input)
    half = jnp.asarray((quant_max - quant_min) / 2, input.dtype)
    scale = jnp.maximum(jnp.maximum(-low, high) / half, jnp.float32(eps))
    zero = jnp.full(1, _UINT8_MIDDLE if dtype is torch.uint8 else 0)
    return _as_torch(scale.reshape(1), zero)


@lowers(quantized.choose_qparams_per_token.default)
def choose_qparams_per_token(input: Array, dtype: torch.dtype) -> tuple[Array, Array]:
    greatest = jnp.abs(input).max(axis=-1, keepdims=True)
    if input.dtype == jnp.float16:
        greatest = greatest.astype(jnp.float32)
    least = jnp.asarray(_LEAST_PER_TOKEN, greatest.dtype)
    scale = jnp.maximum(greatest, least) / jnp.asarray(_INT8_HIGH, greatest.dtype)
    return _as_torch(scale, jnp.zeros_like(scale))


@lowers(
    quantized.choose_qparams_per_token_asymmetric.default,
    quantized._choose_qparams_per_token_asymmetric_impl.default,
)
def choose_qparams_per_token_asymmetric(
    input: Array, dtype: torch.dtype
) -> tuple[Array, Array]:
    low = jnp.minimum(input.min(axis=-1, keepdims=True), 0)
    high = jnp.maximum(input.max(axis=-1, keepdims=True), 0)
    scale = (high - low) / jnp.asarray(_INT8_HIGH - _INT8_LOW, input.dtype)
    scale = jnp.maximum(scale, jnp.asarray(np.finfo(np.float32).eps, input.dtype))
    down, up = low / scale, high / scale
    from_low = (_INT8_LOW + down) + (_INT8_HIGH + up) > 0
    zero = jnp.where(from_low, _INT8_LOW - down, _INT8_HIGH - up)
    return _as_torch(scale, jnp.round(jnp.clip(zero, _INT8_LOW, _INT8_HIGH)))
