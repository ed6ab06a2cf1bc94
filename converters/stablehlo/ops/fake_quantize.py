"""Quantized and dequantized at once, as quantization-aware training leaves it in a model."""

from __future__ import annotations

import jax.numpy as jnp
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from jax import Array

from tpu_export.converters.stablehlo.operands import axis as axis_of
from tpu_export.converters.stablehlo.operands import cast
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
quantized = torch.ops.quantized_decomposed


def _fake(
    x: Array, scale: Array, zero_point: Array, low: int, high: int
) -> tuple[Array, Array]:
    """Return the values, and where none was clipped."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    step = scale.astype(jnp.float32)
    scaled = x.astype(wide) * (jnp.float32(1) / step).astype(wide)
    zero = zero_point.astype(wide)
    if jnp.issubdtype(zero_point.dtype, jnp.floating):
        level = jnp.round(scaled + zero)
    else:
        level = jnp.round(scaled) + zero
    kept = (jnp.clip(level, low, high) - zero) * step.astype(wide)
    return kept.astype(x.dtype), (level >= low) & (level <= high)


@lowers(aten.fake_quantize_per_tensor_affine_cachemask.default)
def per_tensor_with_mask(
    x: Array,
    scale: Array | float,
    zero_point: Array | int,
    quant_min: int,
    quant_max: int,
) -> tuple[Array, Array]:
    step, zero = cast(scale, torch.float32), cast(zero_point, torch.int64)
    return _fake(x, step.reshape(()), zero.reshape(()), quant_min, quant_max)


@lowers(
    aten.fake_quantize_per_tensor_affine.default,
    aten.fake_quantize_per_tensor_affine.tensor_qparams,
)
def per_tensor(
    x: Array,
    scale: Array | float,
    zero_point: Array | int,
    quant_min: int,
    quant_max: int,
) -> Array:
    return per_tensor_with_mask(x, scale, zero_point, quant_min, quant_max)[0]


@lowers(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def per_tensor_if_enabled(
    x: Array,
    scale: Array,
    zero_point: Array,
    fake_quant_enabled: Array,
    quant_min: int,
    quant_max: int,
) -> tuple[Array, Array]:
    y, mask = per_tensor_with_mask(x, scale, zero_point, quant_min, quant_max)
    off = fake_quant_enabled.reshape(()) == 0
    return jnp.where(off, x, y), mask | off


@lowers(aten.fake_quantize_per_channel_affine_cachemask.default)
def per_channel_with_mask(
    x: Array,
    scale: Array,
    zero_point: Array,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> tuple[Array, Array]:
    shape = [1] * x.ndim
    shape[axis_of(axis, x.ndim)] = -1
    step, zero = scale.reshape(shape), zero_point.reshape(shape)
    return _fake(x, step, zero, quant_min, quant_max)


@lowers(
    aten.fake_quantize_per_channel_affine.default,
    quantized.fake_quant_per_channel.default,
)
def per_channel(
    x: Array,
    scale: Array,
    zero_point: Array,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Array:
    args = (x, scale, zero_point, axis, quant_min, quant_max)
    return per_channel_with_mask(*args)[0]
