"""Quantize and dequantize, as PT2E graphs carry them."""

from __future__ import annotations

import jax.numpy as jnp
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from jax import Array

from tpu_export.converters.stablehlo.operands import cast
from tpu_export.converters.stablehlo.registry import lowers

quantized = torch.ops.quantized_decomposed


def _quantize(
    x: Array, scale: Array, zero_point: Array, low: int, high: int, dtype: torch.dtype
) -> Array:
    # torch multiplies by the reciprocal, and rounds half to even before adding the zero point.
    x = x.astype(jnp.float32)
    scaled = jnp.round(x * (jnp.float32(1) / scale)) + zero_point
    return cast(jnp.clip(scaled, low, high), dtype)


def _dequantize(
    x: Array, scale: Array, zero_point: Array | None, dtype: torch.dtype | None
) -> Array:
    y = x.astype(jnp.float32)
    y = y if zero_point is None else y - zero_point.astype(jnp.float32)
    return cast(y * scale, dtype or torch.float32)


def _along(values: Array, rank: int, axis: int) -> Array:
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


@lowers(
    quantized.quantize_per_tensor.default,
    quantized.quantize_per_tensor.tensor,
    quantized.quantize_per_tensor.tensor2,
)
def quantize_per_tensor(
    x: Array,
    scale: Array | float,
    zero_point: Array | int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Array:
    step, zero = cast(scale, torch.float32), cast(zero_point, torch.float32)
    return _quantize(x, step, zero, quant_min, quant_max, dtype)


@lowers(
    quantized.dequantize_per_tensor.default,
    quantized.dequantize_per_tensor.tensor,
    quantized.dequantize_per_tensor.tensor2,
)
def dequantize_per_tensor(
    x: Array,
    scale: Array | float,
    zero_point: Array | int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Array:
    step, zero = cast(scale, torch.float32), cast(zero_point, torch.float32)
    return _dequantize(x, step, zero, out_dtype)


@lowers(quantized.quantize_per_channel.default)
def quantize_per_channel(
    x: Array,
    scales: Array,
    zero_points: Array,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Array:
    scale, zero = (_along(t, x.ndim, axis) for t in (scales, zero_points))
    scale = scale.astype(jnp.float32)
    zero = zero.astype(jnp.float32)
    return _quantize(x, scale, zero, quant_min, quant_max, dtype)


@lowers(quantized.dequantize_per_channel.default)
def dequantize_per_channel(
    x: Array,
    scales: Array,
    zero_points: Array | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Array:
    zero = None if zero_points is None else _along(zero_points, x.ndim, axis)
    scale = _along(scales, x.ndim, axis).astype(jnp.float32)
    return _dequantize(x, scale, zero, out_dtype)


@lowers(quantized.quantize_per_token.default)
def quantize_per_token(
    x: Array,
    scales: Array,
    zero_points: Array,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Array:
    scale, zero = scales.astype(jnp.float32), zero_points.astype(jnp.float32)
    return _quantize(x, scale, zero, quant_min, quant_max, dtype)


@lowers(quantized.dequantize_per_token.default)
def dequantize_per_token(
    x: Array,
    scales: Array,
    zero_points: Array,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype,
) -> Array:
    return _dequantize(x, scales, zero_points, output_dtype)
