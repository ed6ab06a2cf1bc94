"""Programs of a few simple ops computed by numpy: XLA takes some 5 ms to compile each of them.

What only moves elements is a view: no weight is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.runtime.stablehlo import parsed


def computed(module: bytes, arrays: Sequence[Array]) -> list[Array] | None:
    """Return what a portable program makes of arrays; None where it has other ops than these.

    Args:
        module: with one function, of static shapes.
        arrays: its arguments.
    """
    program = parsed(module)
    functions = list(program.body.operations)
    block = functions[0].regions[0].blocks[0]
    operations = list(block.operations)
    known = {"stablehlo.constant", "func.return", *_MOVES, *_SUMS}
    others = {o.name for o in operations} - known
    if len(functions) > 1 or others or not _is_float32([*block.arguments], operations):
        return None
    values: dict[Any, Array] = dict(zip(block.arguments, arrays, strict=True))
    with np.errstate(all="ignore"):
        for operation in operations[:-1]:
            operands = [values[v] for v in operation.operands]
            values[operation.result] = _result(operation, operands)
    return [values[v] for v in operations[-1].operands]


def _is_float32(arguments: Sequence[Any], operations: Sequence[Any]) -> bool:
    """Tell whether all values are float32: numpy divides integers in another way."""
    values = [*arguments, *(r for o in operations for r in o.results)]
    return all(str(v.type.element_type) == "f32" for v in values)


def _result(operation: Any, operands: Sequence[Array]) -> Array:
    if operation.name == "stablehlo.constant":
        return np.array(operation.attributes["value"])
    if operation.name in _MOVES:
        return _MOVES[operation.name](operation, *operands)
    return _SUMS[operation.name](*operands)


def _broadcast(operation: Any, x: Array) -> Array:
    shape = operation.result.type.shape
    placed = np.ones(len(shape), np.int64)
    placed[list(operation.broadcast_dimensions)] = x.shape
    return np.broadcast_to(x.reshape(placed), shape)


def _reciprocal_root(x: Array) -> Array:
    found: Array = np.float32(1) / np.sqrt(x)
    return found


_MOVES: Mapping[str, Callable[..., Array]] = {
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.reshape": lambda op, x: x.reshape(op.result.type.shape),
    "stablehlo.transpose": lambda op, x: x.transpose(list(op.permutation)),
}
_SUMS: Mapping[str, Callable[..., Array]] = {
    "stablehlo.add": np.add,
    "stablehlo.divide": np.divide,
    "stablehlo.multiply": np.multiply,
    "stablehlo.negate": np.negative,
    "stablehlo.rsqrt": _reciprocal_root,
    "stablehlo.sqrt": np.sqrt,
    "stablehlo.subtract": np.subtract,
}
