"""Which weights the converter's passes multiply by what follows: they must see the values.

A product of constants that stays runs in every call, and XNNPACK leaves the convolution or
matrix product of a computed weight to a plain kernel.
"""

from __future__ import annotations

from typing import Any

_CONVOLUTION = "stablehlo.convolution"
_PRODUCT = "stablehlo.dot_general"
_MOVES = ("stablehlo.transpose", "stablehlo.reshape", "stablehlo.reverse")
_PASSES = (*_MOVES, "stablehlo.add", "stablehlo.subtract")
_SCALES = ("stablehlo.multiply", "stablehlo.divide")
_CONSTANTS = ("stablehlo.constant", "arith.constant")


def folded(weight: Any, count: int) -> bool:
    """Tell whether a weight is a filter, or the matrix of a product that is scaled.

    Args:
        weight: an argument of main.
        count: of the leading arguments, which are weights.
    """
    for use in weight.uses:
        owner = use.owner
        if owner.name == _CONVOLUTION:
            return True
        if owner.name == _PRODUCT and _scaled(owner.results[0], count):
            return True
        if owner.name in _MOVES and folded(owner.results[0], count):
            return True
    return False


def _scaled(value: Any, count: int, depth: int = 4) -> bool:
    """Tell whether a value is multiplied by a constant, after moves and sums of constants."""
    for use in value.uses:
        owner = use.owner
        others = [v for v in owner.operands if v != value]
        if not all(_constant(v, count) for v in others):
            continue
        if owner.name in _SCALES:
            return True
        through = depth > 0 and owner.name in _PASSES
        if through and _scaled(owner.results[0], count, depth - 1):
            return True
    return False


def _constant(value: Any, count: int, depth: int = 8) -> bool:
    """Tell whether a value depends on weights and constants only."""
    owner = value.owner
    name = getattr(owner, "name", None)
    if name is None:  # an argument has a block
        return bool(value.arg_number < count)
    if name in _CONSTANTS:
        return True
    operands = list(owner.operands)
    return (
        depth > 0
        and bool(operands)
        and all(_constant(v, count, depth - 1) for v in operands)
    )
