"""Values on a grid in MLIR: activations that are rounded to one, and weights of integers.

Imported in workers only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from litert_converter.mlir import ir

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.grid import Grid

MOVES = ("stablehlo.reshape", "stablehlo.transpose")
_SLICE, _BROADCAST = "stablehlo.slice", "stablehlo.broadcast_in_dim"
FOLDS = (*MOVES, "stablehlo.convert", _SLICE, _BROADCAST)
_DTYPES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "f32": np.float32}


def name_of(operation: Any) -> str:
    """Return the name of a composite, otherwise of the op."""
    name = str(operation.operation.name)  # a composite's .name is its attribute
    if name != "stablehlo.composite":
        return name
    return str(ir.StringAttr(operation.attributes["name"]).value)


def readers(value: Any) -> list[Any]:
    """Return the ops that read a value, each once."""
    return list(dict.fromkeys(use.owner for use in value.uses))


def retyped(value: Any, element: Any) -> Any:
    """Return the type of a value with other elements."""
    return ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, element)


def rounded(value: Any, grid: Grid) -> Any:
    """Return a value on a grid as the converter's passes know it."""
    kind = retyped(value, ir.Type.parse(grid.text))
    made = ir.Operation.create("stablehlo.uniform_quantize", [kind], [value])
    back = [retyped(value, ir.F32Type.get())]
    return ir.Operation.create(
        "stablehlo.uniform_dequantize", back, [made.result]
    ).result


def spread(value: Any, array: Array, grid: Grid) -> None:
    """Hold a weight where it is read; moves of it are done here."""
    held = None
    for use in list(value.uses):
        reader = use.owner
        other = _moved_grid(grid, reader) if name_of(reader) in MOVES else None
        if other is not None:
            spread(reader.result, moved(array, reader), other)
            reader.erase()
        else:
            with reader.location:
                held = held or _held(array, grid)
            reader.operands[use.operand_number] = held


def _moved_grid(grid: Grid, operation: Any) -> Grid | None:
    if name_of(operation) == "stablehlo.transpose":
        return grid.transposed(_order(operation))
    return grid.reshaped(_shape(operation.operands[0]), _shape(operation.result))


def moved(array: Array, operation: Any) -> Array:
    """Return what a reshape or transpose makes of an array."""
    if name_of(operation) == "stablehlo.transpose":
        return array.transpose(_order(operation))
    return array.reshape(_shape(operation.result))


def folded(array: Array, operation: Any) -> Array | None:
    """Return what one of FOLDS makes of an array; None of what no grid consists of."""
    name = name_of(operation)
    if name in MOVES:
        return moved(array, operation)
    if name == _SLICE:
        given = ("start_indices", "limit_indices", "strides")
        ends = (ir.DenseI64ArrayAttr(operation.attributes[n]) for n in given)
        return array[tuple(map(slice, *ends))]
    if name == _BROADCAST:
        shape = _shape(operation.result)
        return np.full(shape, array.reshape(())) if array.size == 1 else None
    kind = ir.RankedTensorType(operation.result.type).element_type
    return array.astype(_DTYPES[str(kind)]) if str(kind) in _DTYPES else None


def _order(transpose: Any) -> list[int]:
    return list(ir.DenseI64ArrayAttr(transpose.attributes["permutation"]))


def _shape(value: Any) -> list[int]:
    return list(ir.RankedTensorType(value.type).shape)


def _held(array: Array, grid: Grid) -> Any:
    """Return a constant: integers, or floats where LiteRT has no such integers."""
    if not grid.is_stored:
        floats = ir.DenseElementsAttr.get(grid.floats(array))
        return ir.Operation.create(
            "stablehlo.constant", [floats.type], attributes={"value": floats}
        ).result
    stored = ir.DenseElementsAttr.get(grid.stored(array))
    kind = ir.RankedTensorType.get(array.shape, ir.Type.parse(grid.text))
    made = ir.Operation.create(
        "tfl.pseudo_qconst",
        [kind],
        attributes={"qtype": ir.TypeAttr.get(kind), "value": stored},
    )
    back = ir.RankedTensorType.get(array.shape, ir.F32Type.get())
    return ir.Operation.create("tfl.dequantize", [back], [made.result]).result
