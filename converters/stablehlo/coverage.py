"""Which ops of a graph can be lowered: asked before any work starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from tpu_export.converters.stablehlo.decompose import decompose
from tpu_export.converters.stablehlo.functional import functionalize
from tpu_export.converters.stablehlo.interpreter import FACTS, Interpreter
from tpu_export.converters.stablehlo.location import module_path, source_line
from tpu_export.converters.stablehlo.mutating import called_op
from tpu_export.converters.stablehlo.ops import registered_ops
from tpu_export.converters.stablehlo.registry import Target, find_own, find_variants
from tpu_export.runtime.errors import TpuExportError

Status = Literal["rule", "decomposed", "unsupported"]
UNSUPPORTED_HINT = (
    "register a rule with @tpu_export.lowers(torch.ops…) in your model file, or replace "
    "the op; `tpu-export ops MODEL` lists all ops"
)
_PLACES_SHOWN = 3
_TARGETS: dict[Target, str] = {"xla": "TPU and CPU", "litert": "LiteRT"}
aten = torch.ops.aten
# They give a tensor another size in place: every node that names it would change.
_NEVER = frozenset({aten.resize_.default, aten.resize_as_.default})


@dataclass(frozen=True)
class OpCoverage:
    """One op of a graph.

    Attributes:
        op: "aten.gelu.default".
        count: how often it occurs.
        status: has a rule, decomposes into ops that have one, or neither.
        places: "module.path (model.py:31)" of each occurrence.
        missing: ops of its decomposition that have no rule.
        platforms: those for which the user has a rule beside the general one.
        own: the user's rule, as "gelu at model.py:12"; "" where it is not the user's.
    """

    op: str
    count: int
    status: Status
    places: tuple[str, ...]
    missing: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    own: str = ""


class UnsupportedOpsError(TpuExportError):
    """Ops that have neither a rule nor a decomposition: all of them at once."""

    code = "TPX-0201"

    def __init__(self, ops: list[OpCoverage], target: Target) -> None:
        """Name every op with its count and places."""
        lines = []
        for op in ops:
            places = ", ".join(op.places[:_PLACES_SHOWN])
            more = len(op.places) - _PLACES_SHOWN
            via = f" through {', '.join(op.missing)}" if op.missing else ""
            if op.platforms:
                via += (
                    f" (its rule for {' and '.join(op.platforms)} alone is not enough)"
                )
            lines.append(
                f"{op.op} x{op.count}{via} at {places}"
                + (f" and {more} more" if more > 0 else "")
            )
        super().__init__(
            f"no lowering rule for {len(ops)} op(s) for {_TARGETS[target]}: {'; '.join(lines)}",
            hint=UNSUPPORTED_HINT,
        )
        self.ops = ops


def coverage(
    program: ExportedProgram, target: Target = "xla", model_file: Path | None = None
) -> list[OpCoverage]:
    """Return every op of the program, most frequent first."""
    return _coverage(functionalize(program).program.graph_module, target, model_file)


def check_coverage(
    module: GraphModule, target: Target, model_file: Path | None = None
) -> None:
    """Raise UnsupportedOpsError unless every op of the graph can be lowered."""
    missing = [
        op for op in _coverage(module, target, model_file) if op.status == "unsupported"
    ]
    if missing:
        raise UnsupportedOpsError(missing, target)


def _coverage(
    module: GraphModule, target: Target, model_file: Path | None
) -> list[OpCoverage]:
    nodes: dict[Any, list[Node]] = {}
    for node in _calls(module):
        nodes.setdefault(called_op(node), []).append(node)
    interpreter = Interpreter(target)
    found = []
    for op, places in nodes.items():
        status, missing = how_lowered(interpreter, places)
        found.append(
            OpCoverage(
                op=str(op),
                count=len(places),
                status=status,
                places=tuple(
                    f"{module_path(n) or 'the root'} ({source_line(n, model_file)})"
                    for n in places
                ),
                missing=missing,
                platforms=tuple(find_variants(op, target)),
                own=str(find_own(op, target) or ""),
            )
        )
    return sorted(found, key=lambda c: (-c.count, c.op))


def _calls(module: GraphModule) -> Iterator[Node]:
    for part in module.modules():
        if isinstance(part, GraphModule):
            for node in part.graph.nodes:
                if node.target not in FACTS and isinstance(
                    node.target, OpOverload | HigherOrderOperator
                ):
                    yield node


def how_lowered(
    interpreter: Interpreter, nodes: Sequence[Node]
) -> tuple[Status, tuple[str, ...]]:
    """Return the status of the op of some nodes, and what its decomposition lacks."""
    op = called_op(nodes[0])
    if op in _NEVER:
        return "unsupported", ()
    if interpreter.rule(op) is not None:
        return "rule", ()
    missing: Counter[str] = Counter()
    for node in nodes:
        found = decompose(node, registered_ops())
        if found is None:
            return "unsupported", ()
        if found.fixed:
            return "unsupported", ("a decomposition that fixes a dynamic size",)
        missing.update(
            str(inner.target)
            for inner in _calls(found.graph)
            if interpreter.rule(inner.target) is None
        )
    return ("unsupported", tuple(sorted(missing))) if missing else ("decomposed", ())
