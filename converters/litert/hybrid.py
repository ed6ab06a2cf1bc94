"""Products of float values and integer weights in MLIR.

LiteRT's kernels for these compute scales of the values by themselves. Imported in workers only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from litert_converter.mlir import ir

from tpu_export.converters.litert.grid import WHOLE
from tpu_export.converters.litert.gridded import MOVES, name_of, readers

_PRODUCTS = ("stablehlo.convolution", "stablehlo.dot_general")
_KERNELS = ("tfl.conv_2d", "tfl.depthwise_conv_2d", "tfl.fully_connected")
# What a half type rounds: a kernel that computes a scale of its own does without.
_ROUNDING = ("stablehlo.convert", "stablehlo.reduce_precision")


def join(function: Any, kinds: Collection[str]) -> None:
    """Let kernels of a converted function read integer weights of some types."""
    for operation in list(function.regions[0].blocks[0].operations):
        if operation.operation.name not in _KERNELS:
            continue
        floats = operation.operands[1]
        widened = before(floats, ("tfl.cast",)).owner
        if getattr(widened, "name", "") != "tfl.dequantize":
            continue
        integers = widened.operands[0]
        if str(integers.type) in kinds:
            operation.operands[1] = integers
            _drop(floats, until=integers)


def is_weight(operation: Any) -> bool:
    """Tell whether what an op gives is the second operand of products."""
    return any(
        is_weight(reader)
        if name_of(reader) in MOVES
        else name_of(reader) in _PRODUCTS and operation.result == reader.operands[1]
        for reader in readers(operation.result)
    )


def weights_beside(value: Any) -> list[str]:
    """Return the types of integer weights in products with a value; "" for another reader."""
    found = []
    for reader in readers(value):
        if name_of(reader) in (*MOVES, *_ROUNDING):
            found += weights_beside(reader.result)
            continue
        is_product = name_of(reader) in _PRODUCTS and value == reader.operands[0]
        given = before(reader.operands[1], _ROUNDING) if is_product else None
        found.append("" if given is None else _kind(given.owner))
    return found


def _kind(weight: Any) -> str:
    """Return the type of integers that become a weight; "" without a scale of their own."""
    if getattr(weight, "name", "") != "tfl.dequantize":
        return ""
    kind = ir.RankedTensorType(weight.operands[0].type)
    return "" if kind.element_type == ir.Type.parse(WHOLE.text) else str(kind)


def before(value: Any, names: Sequence[str]) -> Any:
    """Return what ops of some names made a value of."""
    while getattr(value.owner, "name", "") in names:
        value = value.owner.operands[0]
    return value


def _drop(value: Any, until: Any) -> None:
    """Erase what made a value of another that nothing else reads."""
    while value != until and not any(value.uses):
        operation = value.owner
        value = operation.operands[0]
        operation.erase()
