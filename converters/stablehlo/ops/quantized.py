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
    x: Array,
    per_unit: Array,
    zero_point: Array,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Array:
    # torch multiplies by the reciprocal, and rounds half to even before adding the zero point.
    scaled = jnp.round(x.astype(jnp.float32) * per_unit) + zero_point
    return cast(jnp.clip(scaled, low, high), dtype)


def _reciprocal(scale: Array | float) -> Array:
    """Return 1 / scale, which torch computes in double where the scale is a number."""
    if isinstance(scale, float | int):
        return jnp.asarray(1 / scale, jnp.float32)
    return jnp.reciprocal(scale.astype(jnp.float32))


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
    zero = cast(zero_point, torch.float32)
    return _quantize(x, _reciprocal(scale), zero, quant_min, quant_max, dtype)


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
    zero = zero.astype(jnp.float32)
    return _quantize(x, _reciprocal(scale), zero, quant_min, quant_max, dtype)


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
    zero = zero_points.astype(jnp.float32)
    return _quantize(x, _reciprocal(scales), zero, quant_min, quant_max, dtype)


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


def _groups(x: Array, scales: Array, group_size: int) -> Array:
    """Return rows of one scale each."""
    whole = group_size > x.shape[-1] and scales.shape[-1] == 1
    return x.reshape(-1, x.shape[-1] if whole else group_size)


@lowers(quantized.quantize_per_channel_group.default)
def quantize_per_channel_group(
    x: Array,
    scales: Array,
    zero_points: Array,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
) -> Array:
    """Here torch rounds after adding the zero point."""
    rows = _groups(x, scales, group_size)
    level = rows * (1 / scales.reshape(-1, 1)) + zero_points.reshape(-1, 1)
    level = jnp.clip(jnp.round(level), quant_min, quant_max)
    return cast(level, dtype).reshape(x.shape)


@lowers(quantized.dequantize_per_channel_group.default)
def dequantize_per_channel_group(
    x: Array,
    scales: Array,
    zero_points: Array | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Array:
    rows = _groups(x, scales, group_size).astype(scales.dtype)
    if zero_points is not None:
        rows = rows - zero_points.reshape(-1, 1).astype(scales.dtype)
    return cast(rows * scales.reshape(-1, 1), output_dtype).reshape(x.shape)


@lowers(quantized.convert_element_type.no_fuse)
def convert_element_type(x: Array, dtype: torch.dtype) -> Array:
    return cast(x, dtype)
