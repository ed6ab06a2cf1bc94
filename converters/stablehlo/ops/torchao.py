"""Quantize and dequantize as torchao's quantize_ leaves them: a scale for each block of a tensor.

Formulas: torchao 0.18, quantization/quant_primitives.py. Half types are rounded after each op,
as there. choose_scale_float8 torch takes apart itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import (
    DTYPES,
    TORCH_DTYPES,
    result_type,
    rounded,
    widen,
)
from tpu_export.converters.stablehlo.ops.casting import convert
from tpu_export.converters.stablehlo.registry import lowers_named

Level: TypeAlias = int | float

_FEW_BITS = re.compile(r"torch\.(u?)int([1-7])")  # dtypes of which torch says no limits


def limits(
    dtype: torch.dtype, low: Level | None, high: Level | None
) -> tuple[Level, Level]:
    """Return the least and the greatest level: those given, else those of the dtype."""
    if few := _FEW_BITS.fullmatch(str(dtype)):
        count = 2 ** int(few[2])
        lowest = 0 if few[1] else -count // 2
        own: tuple[Level, Level] = (lowest, lowest + count - 1)
    else:
        info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        own = (info.min, info.max)
    return own[0] if low is None else low, own[1] if high is None else high


def blocked(x: Array, blocks: Sequence[int], *parameters: Array) -> list[Array]:
    """Return x with an axis for the blocks of each axis, and parameters that broadcast to it.

    Args:
        x: [n, …]. blocks: the size of a block along each axis; it divides n.
        parameters: a value for each block, in any shape.
    """
    sizes: list[int] = []
    places: list[int] = []
    for size, block in zip(x.shape, blocks, strict=True):
        part = _parted(size, block)
        sizes += part
        places += [1 if block == size else part[0], 1][: len(part)]
    return [x.reshape(sizes), *(p.reshape(places) for p in parameters)]


def _parted(size: int, block: int) -> tuple[int, ...]:
    return (size,) if block in (size, 1) else (size // block, block)


@lowers_named("torchao::choose_qparams_affine")
def choose_qparams_affine(
    input: Array,
    mapping_type: str,
    block_size: Sequence[int],
    target_dtype: torch.dtype,
    quant_min: Level | None = None,
    quant_max: Level | None = None,
    eps: float | None = None,
    scale_dtype: torch.dtype | None = None,
    zero_point_dtype: torch.dtype | None = None,
    keepdim: bool = False,
) -> tuple[Array, Array]:
    low, high = map(float, limits(target_dtype, quant_min, quant_max))
    dtype, own = input.dtype, TORCH_DTYPES[np.dtype(input.dtype)]
    least, most = _range(widen(input), block_size)
    asymmetric = mapping_type == "ASYMMETRIC"
    if asymmetric:
        scale = _over(rounded(most - least, dtype), high - low, dtype)
    elif mapping_type == "SYMMETRIC":
        scale = _over(jnp.maximum(-least, most), (high - low) / 2, dtype)
    else:  # SYMMETRIC_NO_CLIPPING_ERR
        down, up = _over(least, low, dtype), _over(most, high, dtype)
        scale = jnp.where(down > up, down, up)
    smallest = torch.finfo(own).smallest_normal if eps is None else eps
    scale = jnp.maximum(scale, jnp.asarray(smallest, dtype).astype(scale.dtype))
    zero = jnp.full_like(scale, int((high + low + 1) / 2))
    if asymmetric:
        zero = rounded(low - jnp.round(rounded(least / scale, dtype)), dtype)
        zero = jnp.clip(zero, low, high)
        zero_point_dtype = zero_point_dtype or torch.int32
    if keepdim:
        sizes = zip(input.shape, block_size, strict=True)
        shape = [size // block for size, block in sizes]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return convert(scale, scale_dtype or own), convert(zero, zero_point_dtype or own)


def _range(x: Array, blocks: Sequence[int]) -> tuple[Array, Array]:
    """Return the least and the greatest value of each block, 0 among them."""
    axes: list[int] = []
    count = 0
    for size, block in zip(x.shape, blocks, strict=True):
        count += len(_parted(size, block))
        axes += [count - 1] if block != 1 else []
    (x,) = blocked(x, blocks)
    over = tuple(axes) or None  # torch.amin over no axis is over all
    return jnp.minimum(x.min(over), 0), jnp.maximum(x.max(over), 0)


def _over(x: Array, number: float, dtype: np.dtype[Any]) -> Array:
    """Return x / number to the last bit.

    The greatest value of a block lies half way between two levels, and compilers multiply by
    the inverse of what they know to be constant.
    """
    divisor = jnp.full_like(x, number)
    if current().target == "xla":
        divisor = lax.optimization_barrier(divisor)
    else:
        divisor = jnp.where(x == x, divisor, x)  # all but constant
    return rounded(x / divisor, dtype)


@lowers_named("torchao::quantize_affine")
def quantize_affine(
    input: Array,
    block_size: Sequence[int],
    scale: Array,
    zero_point: Array,
    output_dtype: torch.dtype,
    quant_min: Level | None = None,
    quant_max: Level | None = None,
) -> Array:
    low, high = limits(output_dtype, quant_min, quant_max)
    per_unit = rounded(1 / widen(scale), scale.dtype)
    scaled, summed = result_type(input, scale), result_type(input, scale, zero_point)
    x, per_unit, zero = blocked(widen(input), block_size, per_unit, widen(zero_point))
    level = jnp.round(rounded(x * per_unit, scaled))
    level = rounded(level + zero.astype(level.dtype), summed)
    few_bits = _FEW_BITS.fullmatch(str(output_dtype))
    kept = torch.uint8 if few_bits else output_dtype
    return convert(jnp.clip(level, low, high), kept).reshape(input.shape)


@lowers_named("torchao::dequantize_affine")
def dequantize_affine(
    input: Array,
    block_size: Sequence[int],
    scale: Array,
    zero_point: Array | None,
    input_dtype: torch.dtype,
    quant_min: Level | None = None,
    quant_max: Level | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Array:
    dtype = DTYPES[output_dtype]

    def held(x: Array) -> Array:
        return rounded(x.astype(jnp.float32), dtype)

    given = () if zero_point is None else (held(zero_point),)
    y, step, *zeros = blocked(held(input), block_size, widen(scale), *given)
    for zero in zeros:
        y = held(y - zero)
    product = np.dtype(jnp.promote_types(dtype, scale.dtype))
    return rounded(y * step, product).astype(dtype).reshape(input.shape)


@lowers_named("torchao::quantize_affine_float8_non_decomposed")
def quantize_affine_float8(
    tensor: Array, scale: Array, float8_dtype: torch.dtype = torch.float8_e4m3fn
) -> Array:
    x, step = _by_scale(tensor, scale)
    most = torch.finfo(float8_dtype).max
    return (
        jnp.clip(x / step, -most, most)
        .astype(DTYPES[float8_dtype])
        .reshape(tensor.shape)
    )


@lowers_named("torchao::dequantize_affine_float8_non_decomposed")
def dequantize_affine_float8(
    tensor: Array, scale: Array, output_dtype: torch.dtype = torch.float32
) -> Array:
    x, step = _by_scale(tensor, scale)
    return (x * step).astype(DTYPES[output_dtype]).reshape(tensor.shape)


def _by_scale(x: Array, scale: Array) -> list[Array]:
    """Return a tensor and its scales as float32; the scales' shape says what the blocks are."""
    shape = scale.shape if scale.size != 1 else (1,) * x.ndim
    blocks = [size // count for size, count in zip(x.shape, shape, strict=True)]
    return blocked(x.astype(jnp.float32), blocks, scale.astype(jnp.float32))
