"""Composites of ours that become ops of LiteRT: the converter leaves them as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from litert_converter.mlir import ir

CONSTANTS = ("arith.constant", "tfl.pseudo_const")
_RESIZE = "litert.resize_bilinear"


def replace_composites(module: Any) -> None:
    """Replace them in a converted module, and drop what said how they compute."""
    bodies = set()
    for operation in list(_operations(module.operation)):
        if (
            operation.name == "stablehlo.composite"
            and _text(operation, "name") == _RESIZE
        ):
            bodies.add(
                ir.FlatSymbolRefAttr(operation.attributes["decomposition"]).value
            )
            _resize(operation)
    for function in list(module.body.operations):
        if _text(function, "sym_name") in bodies:
            function.operation.erase()


def _resize(operation: Any) -> None:
    kind = ir.RankedTensorType(operation.results[0].type)
    given = ir.DictAttr(operation.attributes["composite_attributes"])
    *constants, image = operation.operands  # those are of the decomposition
    corners = ir.BoolAttr(given["align_corners"]).value
    with ir.InsertionPoint(operation), operation.location:
        integer = ir.IntegerType.get_signless(32)
        sizes = ir.DenseElementsAttr.get(
            np.array(kind.shape[1:3], np.int32), type=integer
        )
        size = ir.Operation.create(
            "tfl.pseudo_const", results=[sizes.type], attributes={"value": sizes}
        )
        made = ir.Operation.create(
            "tfl.resize_bilinear",
            results=[kind],
            operands=[image, size.result],
            attributes={
                "align_corners": ir.BoolAttr.get(corners),
                "half_pixel_centers": ir.BoolAttr.get(not corners),
            },
        )
    operation.results[0].replace_all_uses_with(made.result)
    operation.erase()
    for value in dict.fromkeys(constants):
        made_by = getattr(value.owner, "name", "")  # an argument has a block
        if made_by in CONSTANTS and not list(value.uses):
            value.owner.erase()


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _operations(inner.operation)
                yield inner.operation


def _text(operation: Any, name: str) -> str:
    attributes = operation.attributes
    return ir.StringAttr(attributes[name]).value if name in attributes else ""
