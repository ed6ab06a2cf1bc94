"""Make the converter's quantized types of the marks that a PT2E program leaves.

The rules for LiteRT write quantize and dequantize as composites (ops/quantized_litert.py). Here
  x -> quantize -> dequantize -> op    and    integer weight -> dequantize -> op
become what the converter's own passes turn into integer ops. With a scale that is computed at each
call, x goes to the op as it is: LiteRT's kernels for float values and integer weights compute a
scale of their own. What has no such form is called as the composite's decomposition, and is float
arithmetic. Imported in workers only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from litert_converter.mlir import ir

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.grid import WHOLE, Grid
from tpu_export.converters.litert.gridded import (
    FOLDS,
    MOVES,
    folded,
    name_of,
    readers,
    retyped,
    rounded,
    spread,
)
from tpu_export.converters.litert.hybrid import before, is_weight, join, weights_beside

Known: TypeAlias = Callable[[Any], Array | None]
_PREFIX = "tpu_export."
_QUANTIZE, _DEQUANTIZE = _PREFIX + "quantize", _PREFIX + "dequantize"
_GROUPED = _PREFIX + "grouped"  # around what was computed in floats
_SAME = ("stablehlo.convert", "stablehlo.reshape")


class Integers:
    """The marks of the signatures of a file, and what became of them.

    Attributes:
        found: as `IntegerOps` has it, JSON-able.
    """

    def __init__(self) -> None:
        self.found: dict[str, Any] = {
            "integers": 0,
            "dynamic": 0,
            "weights": 0,
            "floats": [],
        }
        self._hybrid: set[str] = set()

    def replace(self, module: Any, function: Any, weights: Known) -> None:
        """Replace all marks of a module.

        Args:
            function: its main, with weights as arguments.
            weights: the array of an argument; None for what is no weight.
        """
        marks = _Marks(weights)
        block = function.regions[0].blocks[0]
        told: dict[Any, str] = {}
        for operation in _named(block, _GROUPED):
            marks.group(operation)
        for operation in _named(block, "stablehlo.convert"):
            marks.widened(operation)
        for operation in _named(block, _DEQUANTIZE):
            marks.weight(operation)
        for operation in _named(block, _QUANTIZE):  # none of a weight is read any more
            if why := marks.pair(operation):
                told[operation] = why
        left = _marks_in(module)
        reasons = (told.get(o) or _left(o, block) for o in left)
        self.found["floats"] += [*marks.floats, *filter(None, reasons)]
        self.found["integers"] += marks.pairs
        self.found["dynamic"] += marks.dynamic
        self.found["weights"] += marks.weights
        self._hybrid |= marks.hybrid
        for operation in left:
            _call(operation)

    def join(self, function: Any) -> None:
        """Let ops of a converted function that are dynamic read integer weights."""
        join(function, self._hybrid)


def _named(block: Any, name: str) -> list[Any]:
    return [o for o in block.operations if name_of(o) == name]


def _marks_in(module: Any) -> list[Any]:
    found = []

    def find(operation: Any) -> Any:
        if name_of(operation).startswith(_PREFIX):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(find)
    return found


def _left(mark: Any, main: Any) -> str:
    """Return why a mark is left that nothing was tried with; "" where that is told already."""
    source = mark.operands[0]
    while not isinstance(source.owner, ir.Block) and name_of(source.owner) in MOVES:
        source = source.owner.operands[0]
    if name_of(mark) == _DEQUANTIZE:
        made = not isinstance(source.owner, ir.Block)
        if made and name_of(source.owner) == _QUANTIZE:
            return ""
    if mark.operation.block != main:
        return "a quantization in a loop or branch"
    return "integers that no quantization of the model makes"


def _call(mark: Any) -> None:
    """Turn a mark into a call of what it computes."""
    with ir.InsertionPoint(mark), mark.location:
        kinds = [r.type for r in mark.results]
        callee = {"callee": mark.attributes["decomposition"]}
        made = ir.Operation.create("func.call", kinds, mark.operands, callee)
    mark.result.replace_all_uses_with(made.result)
    mark.erase()


class _Marks:
    """The marked ops of one function.

    Args:
        known: the array of an argument that is a weight.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self.pairs = self.dynamic = self.weights = 0
        self.floats: list[str] = []
        self.hybrid: set[str] = set()

    def weight(self, dequantize: Any) -> None:
        """Hold a weight as integers, or as floats where LiteRT has none."""
        array, grid = self._array(dequantize.operands[0]), self._grid(dequantize)
        if array is None or grid is None:
            return  # no weight: `pair` finds it
        with ir.InsertionPoint(dequantize), dequantize.location:
            spread(dequantize.result, array, grid)
        dequantize.erase()
        self.weights += grid.is_stored
        self.floats += [grid.no_weight] if grid.no_weight else []

    def widened(self, convert: Any) -> None:
        """Hold the int8 weight of a float product as one of scale 1."""
        kinds = [
            ir.RankedTensorType(v.type).element_type
            for v in (convert.operands[0], convert.result)
        ]
        if [str(kind) for kind in kinds] != ["i8", "f32"]:
            return
        array = self._array(convert.operands[0]) if is_weight(convert) else None
        if array is None:
            return
        with ir.InsertionPoint(convert), convert.location:
            spread(convert.result, array, WHOLE)
        convert.erase()
        self.weights += 1

    def group(self, mark: Any) -> None:
        """Tell of what has scales for parts of an axis; it is computed as it stands."""
        mark.result.replace_all_uses_with(mark.operands[0])
        mark.erase()
        self.floats.append("a scale for each group of an axis")

    def pair(self, quantize: Any) -> str | None:
        """Join a quantization with its dequantizations; returns why it cannot be."""
        integers = quantize.result
        if not any(integers.uses):
            quantize.erase()
            return None
        grid = self._grid(quantize)
        if grid is None:
            return self._of_each_call(quantize)
        if grid.no_activation:
            return grid.no_activation
        if not self._is_read(integers, grid):
            return "integers that are not dequantized by the same scale"
        with ir.InsertionPoint(quantize), quantize.location:
            self._rebuilt(integers, quantize.operands[0], grid)
        quantize.erase()
        self.pairs += 1
        return None

    def _of_each_call(self, quantize: Any) -> str | None:
        """Leave a scale that is computed at each call to the kernels that read the value."""
        parameters = _parameters(quantize)
        backs = readers(quantize.result)
        same = all(
            name_of(r) == _DEQUANTIZE and _parameters(r) == parameters for r in backs
        )
        weights = [w for r in backs for w in weights_beside(r.result)] if same else []
        if not weights or not all(weights):
            return (
                "a scale of each call for other ops than products with integer weights"
            )
        for reader in backs:
            reader.result.replace_all_uses_with(quantize.operands[0])
            reader.erase()
        quantize.erase()
        self.hybrid.update(weights)
        self.dynamic += 1
        return None

    def _is_read(self, integers: Any, grid: Grid) -> bool:
        """Tell whether only dequantizations by one grid read integers, moved or not."""
        return all(
            self._grid(reader) == grid
            if name_of(reader) == _DEQUANTIZE
            else name_of(reader) in MOVES and self._is_read(reader.result, grid)
            for reader in readers(integers)
        )

    def _rebuilt(self, integers: Any, value: Any, grid: Grid) -> None:
        """Round a value to the grid, and let the readers of its integers read that."""
        numbers = rounded(value, grid)
        for reader in readers(integers):
            if name_of(reader) == _DEQUANTIZE:
                reader.result.replace_all_uses_with(numbers)
            else:
                kind = retyped(reader.result, ir.F32Type.get())
                attributes = {n: reader.attributes[n] for n in reader.attributes}
                made = ir.Operation.create(
                    name_of(reader), [kind], [numbers], attributes
                )
                self._rebuilt(reader.result, made.result, grid)
            reader.erase()

    def _grid(self, mark: Any) -> Grid | None:
        scales, zeros = (self._array(v) for v in list(mark.operands)[1:])
        if scales is None or zeros is None:
            return None
        integers = mark.result if name_of(mark) == _QUANTIZE else mark.operands[0]
        given = ir.DictAttr(mark.attributes["composite_attributes"])
        axis, low, high = (
            ir.IntegerAttr(given[n]).value for n in ("axis", "low", "high")
        )
        if axis < 0 and scales.size != 1:
            return None
        storage = str(ir.RankedTensorType(integers.type).element_type)
        return Grid.of(scales, zeros, axis, (low, high), storage)

    def _array(self, value: Any) -> Array | None:
        """Return what a value is in all calls, None where that is not known."""
        owner = value.owner
        if isinstance(owner, ir.Block):
            return self._known(value)
        name = name_of(owner)
        if name == "stablehlo.constant":
            return np.array(owner.attributes["value"])
        if name not in (*FOLDS, _QUANTIZE):
            return None
        array = self._array(owner.operands[0])
        if array is None or name in FOLDS:
            return None if array is None else folded(array, owner)
        grid = self._grid(owner)
        return None if grid is None else grid.integers(array)


def _parameters(mark: Any) -> list[Any]:
    """Return where scale and zero point come from, before what changes dtype or shape."""
    return [before(value, _SAME) for value in list(mark.operands)[1:]]
