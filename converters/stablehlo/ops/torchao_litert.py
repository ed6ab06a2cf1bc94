"""torchao's quantize and dequantize for LiteRT: marked, as PT2E's are (quantized_litert.py).

Blocks that are parts of an axis have no form in LiteRT: they are computed, and that is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import DTYPES, KEPT, composite
from tpu_export.converters.stablehlo.ops import torchao as general
from tpu_export.converters.stablehlo.ops.quantized_litert import marked
from tpu_export.converters.stablehlo.registry import lowers_named


def _axis(shape: Sequence[int], blocks: Sequence[int]) -> int | None:
    """Return which axis has a scale for each place, -1 for none or several; None for parts."""
    several = [i for i, (n, b) in enumerate(zip(shape, blocks, strict=True)) if b != n]
    if any(blocks[i] != 1 for i in several):
        return None
    return several[0] if len(several) == 1 else -1


def _told(
    name: str,
    rule: Callable[[Array, Array, Array | None], Array],
    operands: tuple[Array, Array, Array | None],
    blocks: Sequence[int],
    limits: tuple[general.Level, general.Level],
) -> Array:
    x, scale, zero_point = operands
    axis = _axis(x.shape, blocks)
    if axis is None:
        y: Array = composite(KEPT + "grouped", lambda y: y, rule(*operands))
        return y

    def own(x: Array, step: Any, zero: Any) -> Array:
        """Give the rule the dtypes that torchao has, by which it rounds."""
        kept = None if zero_point is None else zero.astype(zero_point.dtype)
        return rule(x, step.astype(scale.dtype), kept)

    low, high = map(int, limits)
    return marked(name, own, operands, axis, (low, high))


@lowers_named("torchao::quantize_affine", target="litert")
def quantize_affine(
    input: Array,
    block_size: Sequence[int],
    scale: Array,
    zero_point: Array,
    output_dtype: torch.dtype,
    quant_min: general.Level | None = None,
    quant_max: general.Level | None = None,
) -> Array:
    limits = general.limits(output_dtype, quant_min, quant_max)

    def rule(x: Array, step: Array, zero: Any) -> Array:
        return general.quantize_affine(x, block_size, step, zero, output_dtype, *limits)

    operands = (input, scale, zero_point)
    return _told("quantize", rule, operands, block_size, limits)


@lowers_named("torchao::dequantize_affine", target="litert")
def dequantize_affine(
    input: Array,
    block_size: Sequence[int],
    scale: Array,
    zero_point: Array | None,
    input_dtype: torch.dtype,
    quant_min: general.Level | None = None,
    quant_max: general.Level | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Array:
    limits = general.limits(input_dtype, quant_min, quant_max)

    def rule(x: Array, step: Array, zero: Array | None) -> Array:
        return general.dequantize_affine(
            x, block_size, step, zero, input_dtype, *limits
        )

    # A half type rounds once, what the mark gives: no difference of small integers is lost.
    operands = (input, scale, zero_point)
    y = _told("dequantize", rule, operands, block_size, limits)
    return y.astype(DTYPES[output_dtype])
