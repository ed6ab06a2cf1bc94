"""Axes that squeeze() drops where a dynamic size is 1, and keeps in the captured graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from tpu_export.converters.stablehlo.location import source_line
from tpu_export.exporter.dims import DimNames
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.runtime.expressions import evaluate
from tpu_export.runtime.signature import Dim

aten = torch.ops.aten
_SQUEEZES = frozenset({aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims})


def kept_axes(
    program: ExportedProgram, names: DimNames, dims: Sequence[Dim]
) -> tuple[str, ...]:
    """Return the sizes that must not be 1, for results have as many axes in every call.

    Raises:
        DimRangeError: the user asked for the size 1 in as many words.
    """
    least = {dim.name: dim.minimum for dim in dims}
    asked = {d.__name__ for d in names.roots.values() if d.min == 1}
    found: dict[str, None] = {}
    for node in program.graph.nodes:
        for size in _droppable(node):
            if not {str(s) for s in size.free_symbols} <= set(names.names):
                continue
            text = str(names.expression(size))
            if evaluate(text, least) != 1:
                continue
            if text in asked:
                raise DimRangeError(
                    f"squeeze() at {source_line(node)} drops an axis where {text} is 1, "
                    "and keeps it elsewhere",
                    hint="name the axis to drop, as in squeeze(-1), or give "
                    f"Dim({text!r}) min=2",
                )
            found[f"{text} != 1"] = None
    return tuple(found)


def _droppable(node: Node) -> Iterator[sympy.Expr]:
    """Yield the dynamic sizes of the axes that a squeeze is about."""
    if node.target not in _SQUEEZES:
        return
    given: Any = node.args
    shape = given[0].meta["val"].shape
    asked = given[1] if len(given) > 1 else range(len(shape))
    for axis in [asked] if isinstance(asked, int) else asked:
        size = shape[axis] if shape else 1
        if isinstance(size, torch.SymInt) and size.node.expr.free_symbols:
            yield size.node.expr
