"""Debug mode: which op of a model our rules compute otherwise than torch (docs/debug.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.location import module_path, source_line
from tpu_export.converters.stablehlo.mutating import called_op
from tpu_export.converters.stablehlo.registry import Platform, Target
from tpu_export.exporter.capture import Captured
from tpu_export.parity.models import captures
from tpu_export.parity.node_walk import Checked, walk
from tpu_export.parity.report import format_table
from tpu_export.parity.reproducer import write_reproducer

NO_OPS = "no ops: the model only passes values through"


@dataclass(frozen=True)
class NodeRow:
    """An op that does not agree.

    Attributes:
        index: its place among the ops of the signature's graph, from 0.
        node: its name in the graph.
        module: dotted path of the module that calls it, "" for the root.
        source: "model.py:31".
        inputs: "float32[2, 3]" of each input tensor; outputs: likewise, torch's.
        max_abs: of the worst output; max_rel: likewise, what is compared with `threshold`;
            None where nothing was measured: no result, or one of another shape.
        note: why it failed when numbers alone do not say it.
        hint: what to do about an error of lowering.
        saved: the folder with its inputs, outputs and reproducer; "" without one.
    """

    signature: str
    index: int
    node: str
    op: str
    module: str
    source: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    max_abs: float | None
    max_rel: float | None
    threshold: float | None
    note: str
    hint: str = ""
    saved: str = ""


@dataclass(frozen=True)
class DebugReport:
    """The outcome of a run.

    Attributes:
        rows: the ops that differ, or that lowering cannot take; only the first one
            without keep_going.
        counts: how many ops got each verdict.
    """

    rows: tuple[NodeRow, ...]
    counts: Mapping[str, int]

    @property
    def passed(self) -> bool:
        """Whether no op differed; a model without ops has none that could."""
        return not self.rows

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON-able values."""
        rows = [asdict(row) for row in self.rows]
        return {"passed": self.passed, "counts": dict(self.counts), "rows": rows}

    def text(self) -> str:
        """Return a table of what differs, and the counts."""
        verdicts = ", ".join(f"{n} {verdict}" for verdict, n in self.counts.items())
        end = f"ops: {verdicts}" if verdicts else NO_OPS
        if not self.rows:
            return end
        details = [line for row in self.rows for line in _details(row)]
        return "\n".join([format_table(_table(self.rows)), *details, end])


def debug(
    model: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    target: Target = "xla",
    platform: Platform = "cpu",
    tolerance: float | None = None,
    keep_going: bool = False,
    save: Path | None = None,
) -> DebugReport:
    """Run each op of a model in torch and through our rules, on torch's inputs of that op.

    Args:
        model: as of `export`.
        args: example inputs; kwargs: likewise.
        target: whose rules: "xla" (Cloud TPU and CPU) or "litert".
        platform: whose program: "tpu" has the user's Pallas kernels, interpreted on the CPU.
        tolerance: overrides the threshold of every floating-point output.
        keep_going: past the first op that differs.
        save: a folder for inputs, outputs and a reproducer of each op that differs.
    """
    rows: list[NodeRow] = []
    counts: Counter[str] = Counter()
    for captured, index, checked in _checked(
        captures(model, args, kwargs, dynamic_shapes), target, platform, tolerance
    ):
        counts[checked.verdict] += 1
        if checked.verdict not in ("differs", "failed"):
            continue
        row = _row(captured, index, checked)
        if save is not None:
            options = {"target": target, "platform": platform}
            row = _saved(row, save, captured, checked, options)
        rows.append(row)
        if not keep_going:
            break
    return DebugReport(tuple(rows), dict(counts))


def _checked(
    signatures: Mapping[str, Captured],
    target: Target,
    platform: Platform,
    tolerance: float | None,
) -> Iterator[tuple[Captured, int, Checked]]:
    for captured in signatures.values():
        found = walk(captured, target=target, platform=platform, tolerance=tolerance)
        for index, checked in enumerate(found):
            yield captured, index, checked


def _row(captured: Captured, index: int, checked: Checked) -> NodeRow:
    node, worst = checked.node, checked.worst
    measured = worst is not None and not worst.note
    return NodeRow(
        signature=captured.name,
        index=index,
        node=node.name,
        op=str(called_op(node)),
        module=module_path(node),
        source=source_line(node, captured.model_file),
        inputs=_shapes(list(checked.inputs.values())),
        outputs=_shapes(checked.expected),
        max_abs=worst.max_abs if worst and measured else None,
        max_rel=worst.max_rel if worst and measured else None,
        threshold=worst.threshold if worst else None,
        note=checked.note,
        hint=checked.hint,
    )


def _saved(
    row: NodeRow,
    folder: Path,
    captured: Captured,
    checked: Checked,
    options: Mapping[str, str],
) -> NodeRow:
    name = f"{row.signature}-{row.index:04d}-{row.node}"
    path = write_reproducer(folder / name, captured, checked, options)
    return replace(row, saved=str(path))


def _shapes(values: Any) -> tuple[str, ...]:
    return tuple(
        f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
        for x in pytree.tree_leaves(values)
        if isinstance(x, torch.Tensor)
    )


def _table(rows: tuple[NodeRow, ...]) -> list[list[str]]:
    header = ["node", "op", "module", "source", "max abs", "max rel", "limit"]
    lines = [
        [
            row.node,
            row.op,
            row.module or "the root",
            row.source,
            _error(row.max_abs),
            _error(row.max_rel),
            "exact" if row.threshold == 0 else _error(row.threshold, 0),
        ]
        for row in rows
    ]
    return [header, *lines]


def _error(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}e}"


def _details(row: NodeRow) -> list[str]:
    inputs, outputs = ", ".join(row.inputs) or "no tensor", ", ".join(row.outputs)
    lines = [f"{row.node}: {inputs} -> {outputs or 'no tensor'}"]
    lines += [f"  {said}" for said in (row.note, row.hint) if said]
    return lines + ([f"  saved in {row.saved}"] if row.saved else [])
