"""Quantize and dequantize for LiteRT: marked, so that its converter's worker makes integer ops.

What finds no integer op is computed as the general rules say, in floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import KEPT, cast, composite
from tpu_export.converters.stablehlo.ops import quantized as general
from tpu_export.converters.stablehlo.registry import Op, lowers

quantized = torch.ops.quantized_decomposed


def marked(
    name: str,
    rule: Callable[[Array, Any, Any], Array],
    operands: tuple[Array, Any, Any],
    axis: int,
    limits: tuple[Any, Any],
) -> Array:
    """Return what a rule gives as a composite that tells axis and limits.

    Args:
        name: of the composite. Its operands are x, scale and zero point, whatever they were.
        rule: takes them as they were. operands: x, scale, zero point.
        axis: which has a scale for each place; -1 for none.
        limits: the least and the largest integer.
    """
    x, scale, zero_point = operands
    given = (scale, zero_point)

    def function(y: Array, *own: Array) -> Array:
        pairs = zip(given, own, strict=True)
        # A number stays one: torch computes with it in double.
        return rule(y, *(o if isinstance(g, Array) else g for g, o in pairs))

    step = cast(scale, torch.float32)
    zero = jnp.zeros_like(step) if zero_point is None else zero_point
    operands = (x, step, cast(zero, torch.int32))
    low, high = limits
    y: Array = composite(
        KEPT + name, function, *operands, axis=axis, low=low, high=high
    )
    return y


def _mark(name: str, rule: Callable[..., Array], *ops: Op, axes: int = 0) -> None:
    """Register a rule of x, scale, zero point, `axes` axes, the least and largest integer."""

    def marking(
        x: Array, scale: Any, zero_point: Any, *rest: Any, **options: Any
    ) -> Array:
        axis = rest[0] % x.ndim if axes else -1
        bound = lambda y, s, z: rule(y, s, z, *rest, **options)  # noqa: E731
        low, high = rest[axes : axes + 2]
        return marked(name, bound, (x, scale, zero_point), axis, (low, high))

    lowers(*ops, target="litert")(marking)


_mark(
    "quantize",
    general.quantize_per_tensor,
    quantized.quantize_per_tensor.default,
    quantized.quantize_per_tensor.tensor,
    quantized.quantize_per_tensor.tensor2,
)
_mark(
    "dequantize",
    general.dequantize_per_tensor,
    quantized.dequantize_per_tensor.default,
    quantized.dequantize_per_tensor.tensor,
    quantized.dequantize_per_tensor.tensor2,
)
_mark(
    "quantize",
    general.quantize_per_channel,
    quantized.quantize_per_channel.default,
    axes=1,
)
_mark(
    "dequantize",
    general.dequantize_per_channel,
    quantized.dequantize_per_channel.default,
    axes=1,
)
_mark("quantize", general.quantize_per_token, quantized.quantize_per_token.default)
_mark(
    "dequantize", general.dequantize_per_token, quantized.dequantize_per_token.default
)
