"""A captured graph in torch, node by node, and each node beside it through our rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.bindings import bind
from tpu_export.converters.stablehlo.coverage import (
    UNSUPPORTED_HINT,
    UnsupportedOpsError,
    how_lowered,
)
from tpu_export.converters.stablehlo.in_place import is_in_place
from tpu_export.converters.stablehlo.interpreter import FACTS, Interpreter
from tpu_export.converters.stablehlo.mutating import called_op
from tpu_export.converters.stablehlo.registry import Platform, Target
from tpu_export.converters.stablehlo.results import is_read
from tpu_export.exporter.capture import Captured
from tpu_export.parity.metrics import Difference, difference
from tpu_export.parity.node_rules import NodeRules, Outcome
from tpu_export.runtime.errors import TpuExportError, counted, with_article

Verdict: TypeAlias = Literal["ok", "differs", "failed", "shape only", "open"]
aten = torch.ops.aten
# Of these torch itself promises no values.
_UNDEFINED = frozenset(
    {
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_permuted.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }
)
# The sign, phase or order of what they give is the library's choice.
_NOT_UNIQUE = frozenset(
    {
        aten._linalg_eigh.default,
        aten._linalg_svd.default,
        aten.geqrf.default,
        aten.linalg_eig.default,
        aten.linalg_eigh.default,
        aten.linalg_qr.default,
        aten.linalg_svd.default,
        aten.svd.default,
        aten.qr.default,
    }
)


@dataclass(frozen=True)
class Checked:
    """One node, as torch and our rules computed it.

    Attributes:
        inputs: what torch had for its input nodes before it ran.
        expected: torch's result.
        outcome: ours; None when lowering raised `error`.
        worst: the difference of the output that is furthest off.
        note: why it has the verdict when numbers alone do not say it.
        hint: what to do about an error.
    """

    node: Node
    verdict: Verdict
    inputs: Mapping[Node, Any] = field(repr=False)
    expected: Any = field(repr=False)
    outcome: Outcome | None = field(default=None, repr=False)
    worst: Difference | None = None
    note: str = ""
    hint: str = ""


def walk(
    captured: Captured,
    *,
    target: Target = "xla",
    platform: Platform = "cpu",
    tolerance: float | None = None,
) -> Iterator[Checked]:
    """Yield every op of a signature, run on its example inputs.

    Each op gets from torch what the ops before it made, so that an error is found where it
    is made. The model is left as it was.
    """
    bound = bind(captured.program, captured.signature)
    module = bound.program.graph_module
    interpreter = Interpreter(target, captured.model_file, bound.same)
    rules = NodeRules(interpreter, module, platform)
    stored = {**bound.weights, **{n: t.clone() for n, t in bound.state.items()}}
    inputs = [t.detach().clone() for t in captured.example_inputs()]
    torchs = _Torch(module, bound.placeholders(stored, inputs))
    for node in module.graph.nodes:
        if not _is_op(node) or rules.repeats(node):
            rules.note(node, torchs.run(node), None)
            continue
        before = torchs.inputs(node)
        if node.meta.get("unbacked_bindings"):
            rules.learn(node, torchs.run(node))
        ours = _ours(rules, interpreter, node, torchs.env)
        torchs.run(node)
        owner = bound.same[node] if is_in_place(node.target) else node
        expected = torchs.env[owner]
        if isinstance(ours, _Failure):
            note, hint = ours.note, ours.hint
            yield Checked(node, "failed", before, expected, note=note, hint=hint)
            continue
        rules.note(node, expected, ours)
        yield _compare(node, before, expected, ours, tolerance)


class _Torch:
    """Runs nodes in torch and keeps every value."""

    def __init__(self, module: GraphModule, placeholders: list[Any]) -> None:
        self._interpreter = torch.fx.Interpreter(module, garbage_collect_values=False)
        self._interpreter.args_iter = iter(placeholders)
        self.env: dict[Node, Any] = self._interpreter.env

    def run(self, node: Node) -> Any:
        """Run a node once; what torch noted of sizes is not checked."""
        if node.target in FACTS:
            self.env[node] = None
        if node not in self.env:
            with torch.no_grad():
                self.env[node] = self._interpreter.run_node(node)
        return self.env[node]

    def inputs(self, node: Node) -> dict[Node, Any]:
        """Return what the node reads, copied when it writes to it."""
        own = torch.clone if is_in_place(node.target) else lambda t: t
        return {
            n: pytree.tree_map_only(torch.Tensor, own, self.env[n])
            for n in node.all_input_nodes
        }


def _is_op(node: Node) -> bool:
    return isinstance(node.target, OpOverload | HigherOrderOperator) and (
        node.target not in FACTS
    )


@dataclass(frozen=True)
class _Failure:
    """Why our rules make nothing of a node, and what to do."""

    note: str
    hint: str


def _ours(
    rules: NodeRules, interpreter: Interpreter, node: Node, env: Mapping[Node, Any]
) -> Outcome | _Failure:
    """Return what our rules make of the node, or why they make nothing."""
    status, missing = how_lowered(interpreter, [node])
    if status == "unsupported":
        via = f" through {', '.join(missing)}" if missing else ""
        said = (
            f"{UnsupportedOpsError.code}: no lowering rule for {called_op(node)}{via}"
        )
        return _Failure(said, UNSUPPORTED_HINT)
    try:
        return rules.run(node, env)
    except TpuExportError as error:
        return _Failure(f"{error.code}: {error.message}", error.hint)


def _compare(
    node: Node,
    before: Mapping[Node, Any],
    expected: Any,
    ours: Outcome,
    tolerance: float | None,
) -> Checked:
    if ours.open:
        note = "its size depends on the data: checked with what reads it"
        return Checked(node, "open", before, expected, ours, note=note)
    theirs = pytree.tree_leaves(expected)
    if len(theirs) != len(ours.leaves):
        note = f"{counted(len(ours.leaves), 'result')}, torch has {len(theirs)}"
        return Checked(node, "differs", before, expected, ours, note=note)
    if ours.miscounted:
        pairs = (f"{mine} where torch has {size}" for mine, size in ours.miscounted)
        note = f"counts {', '.join(pairs)}"
        return Checked(node, "differs", before, expected, ours, note=note)
    reason = _only_shapes(node, ours)
    found = [
        _difference(mine, theirs_, tolerance, shape_only=bool(reason))
        for i, (mine, theirs_) in enumerate(zip(ours.leaves, theirs, strict=True))
        if len(theirs) == 1 or is_read(node, i)
    ]
    worst = max(found, key=_excess, default=None)
    if worst is not None and not worst.passed:
        return Checked(node, "differs", before, expected, ours, worst, worst.note)
    verdict: Verdict = "shape only" if reason else "ok"
    return Checked(node, verdict, before, expected, ours, worst, reason)


def _only_shapes(node: Node, ours: Outcome) -> str:
    """Say why values cannot be compared; "" when they can."""
    if ours.drew:
        return "random: torch's stream is its own"
    if node.target in _UNDEFINED:
        return "torch promises no values"
    if node.target in _NOT_UNIQUE:
        return "not unique: signs and order are the library's choice"
    return ""


def _difference(
    mine: Any, theirs: Any, tolerance: float | None, *, shape_only: bool
) -> Difference:
    if not isinstance(theirs, torch.Tensor):
        return _of_numbers(mine, theirs)
    expected = as_numpy(theirs)
    if not isinstance(mine, np.ndarray):
        note = f"{with_article(type(mine).__name__)} where torch has a tensor"
        return Difference(np.inf, np.inf, 0.0, 0.0, passed=False, note=note)
    if shape_only and (mine.shape, mine.dtype) == (expected.shape, expected.dtype):
        return Difference(0.0, 0.0, 1.0, np.inf, passed=True)
    return difference(mine, expected, tolerance)


def _of_numbers(mine: Any, theirs: Any) -> Difference:
    """Compare sizes, numbers read from tensors, and None."""
    value = mine.item() if isinstance(mine, np.ndarray) else mine
    same = value == theirs or (value != value and theirs != theirs)
    note = "" if same else f"{value} where torch has {theirs}"
    far = 0.0 if same else np.inf
    return Difference(far, far, 1.0, 0.0, passed=same, note=note)


def _excess(found: Difference) -> float:
    if not found.passed and not found.threshold:
        return np.inf
    return found.max_rel / found.threshold if found.threshold else 0.0
