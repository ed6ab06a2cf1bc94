"""Take stand-ins out of a converted program, with all that depends on them and constants only.

What is left holds a marker for each, of a few bytes and of the right type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from litert_converter.mlir import ir

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.standins import OPS, Expression, keys_of, marker

_CONSTANTS = ("arith.constant", "tfl.pseudo_const")
_CONVOLUTIONS = ("conv_2d", "conv_3d", "transpose_conv", "conv_3d_transpose")
_SCALES = ("tfl.div", "tfl.mul")
_NAMED = "dense_resource<"


class ValuesNeededError(Exception):
    """An op that only the converter can compute reads these weights and constants only."""

    def __init__(self, keys: set[str], op: str) -> None:
        super().__init__(op)
        self.keys, self.op = keys, op


class Withdrawal:
    """The stand-ins of one module, in the order of their markers.

    Args:
        keys: of the weights, by the names of their resources.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = keys
        self._known: dict[Any, Expression] = {}
        self.expressions: list[Expression] = []
        self.constants: dict[str, Array] = {}

    def run(self, block: Any) -> None:
        """Replace the stand-ins of a block and of the regions in it.

        Raises:
            ValuesNeededError: some cannot be taken out.
        """
        operations = list(block.operations)
        for operation in operations:
            for region in operation.regions:
                for inner in region.blocks:
                    self.run(inner)
            self._read(operation)
        made = [o for o in operations if len(o.results) and o.results[0] in self._known]
        for operation in made:
            result = operation.results[0]
            if any(not self._computes(use.owner) for use in result.uses):
                self._mark(operation, result)
        for operation in reversed(made):
            if _unused(operation):
                constants = [
                    v.owner for v in operation.operands if v not in self._known
                ]
                operation.erase()
                for constant in filter(_unused, dict.fromkeys(constants)):
                    constant.erase()

    def _computes(self, operation: Any) -> bool:
        return len(operation.results) == 1 and operation.results[0] in self._known

    def _read(self, operation: Any) -> None:
        if operation.name in _CONSTANTS:
            if (key := self._key(operation)) is not None:
                shape = list(ir.RankedTensorType(operation.results[0].type).shape)
                self._known[operation.results[0]] = {"weight": key, "shape": shape}
            return
        operands = list(operation.operands)
        reads = [v for v in operands if v in self._known]
        if not reads or len(operation.results) == 0:  # or a result of the signature
            return
        if operation.name.endswith(_CONVOLUTIONS):
            # What follows is multiplied into a filter only where it is no TRANSPOSE.
            self._refuse([v for v in reads if _transposed(self._known[v])], operation)
        if not all(v in self._known or _dense(v) for v in operands):
            if _scaled(operation):  # by one more factor than passes see without values
                self._refuse([v for v in reads if "op" in self._known[v]], operation)
            return
        if operation.name not in OPS or _activated(operation):
            self._refuse(reads, operation)
        of = [self._known.get(v) or self._constant(v) for v in operands]
        self._known[operation.results[0]] = {"op": operation.name, "of": of}

    def _refuse(self, values: Sequence[Any], operation: Any) -> None:
        if keys := keys_of([self._known[v] for v in values]):
            raise ValuesNeededError(keys, operation.name)

    def _key(self, operation: Any) -> str | None:
        attribute = operation.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr):
            return None  # its text would be as long as its values
        name, _, _ = str(attribute).removeprefix(_NAMED).partition(">")
        return self._keys.get(name)

    def _constant(self, value: Any) -> Expression:
        name = str(len(self.constants))
        self.constants[name] = np.array(value.owner.attributes["value"])
        return {"constant": name}

    def _mark(self, operation: Any, result: Any) -> None:
        kind = ir.RankedTensorType(result.type)
        content = np.frombuffer(marker(len(self.expressions)), np.uint8)
        self.expressions.append(self._known[result])
        with ir.InsertionPoint(operation), operation.location:
            # The type is the weight's own: what the ops are checked against, and the file has.
            made = ir.Operation.create(
                "tfl.pseudo_const",
                results=[kind],
                attributes={"value": ir.DenseElementsAttr.get(content)},
            )
        result.replace_all_uses_with(made.result)


def _scaled(operation: Any) -> bool:
    """Tell whether a result is multiplied by a constant."""
    return not _activated(operation) and any(
        use.owner.name in _SCALES and any(map(_dense, use.owner.operands))
        for result in operation.results
        for use in result.uses
    )


def _unused(operation: Any) -> bool:
    return not any(True for result in operation.results for _ in result.uses)


def _transposed(expression: Expression) -> bool:
    return expression.get("op") == "tfl.transpose" or any(
        map(_transposed, expression.get("of", ()))
    )


def _dense(value: Any) -> bool:
    return getattr(value.owner, "name", "") in _CONSTANTS and isinstance(
        value.owner.attributes["value"], ir.DenseElementsAttr
    )


def _activated(operation: Any) -> bool:
    name = "fused_activation_function"
    attributes = operation.attributes
    return name in attributes and ir.StringAttr(attributes[name]).value != "NONE"
