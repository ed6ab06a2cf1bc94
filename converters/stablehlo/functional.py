"""Mutation made explicit: which nodes are one tensor, which inputs get new values.

Most graphs with in-place ops need no rewriting: an op that writes to a tensor of which no view
is read later rebinds that tensor's name. Only where views are alive across a write,
torch's own functionalization runs.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from tpu_export.converters.stablehlo.hidden_writes import announce

aten = torch.ops.aten
# In eval mode they return their input without saying so in the schema.
_MAY_ALIAS = frozenset({aten.dropout.default, aten.feature_dropout.default})
_TRAINING: dict[Any, int] = {aten.batch_norm.default: 5}


@dataclass(frozen=True)
class Functional:
    """A program whose writes are explicit.

    Attributes:
        program: the program to interpret, decomposed only if it had to be.
        same: node -> the node whose tensor it is (results of in-place ops).
        written: placeholders that get a new value by rebinding, in order.
    """

    program: ExportedProgram
    same: Mapping[Node, Node] = field(default_factory=dict)
    written: tuple[Node, ...] = ()


def functionalize(program: ExportedProgram) -> Functional:
    """Return the program with its mutations explicit."""
    program = announce(program)
    kinds = {spec.kind.name for spec in program.graph_signature.output_specs}
    if kinds <= {"USER_OUTPUT"}:
        inner = _writes_in_subgraphs(program.graph_module)
        found = None if inner else _rebinding(program.graph)
        if found is not None:
            return Functional(program, *found)
    elif not any(_writes(node) for node in program.graph.nodes):
        return Functional(program)
    with warnings.catch_warnings():  # torch's about its own pytrees
        warnings.filterwarnings("ignore", category=FutureWarning)
        return Functional(program.run_decompositions({}))


def functional_twin(op: OpOverload) -> OpOverload | None:
    """Return the overload that computes what an in-place overload writes.

    >>> functional_twin(torch.ops.aten.add_.Tensor)
    <OpOverload(op='aten.add', overload='Tensor')>
    """
    namespace, name = op._schema.name.split("::")
    if not name.endswith("_"):
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    return getattr(packet, op._overloadname, None)


def is_in_place(op: object) -> bool:
    """Whether the op writes to one of its arguments."""
    return isinstance(op, OpOverload) and op._schema.is_mutable


def _writes_in_subgraphs(module: GraphModule) -> bool:
    """Whether a subgraph writes, such as the body of `with torch.no_grad()`."""
    return any(
        is_in_place(node.target)
        for part in module.modules()
        if isinstance(part, GraphModule) and part is not module
        for node in part.graph.nodes
    )


def _writes(node: Node) -> list[Node]:
    """Return the nodes whose tensors an op writes to."""
    if not is_in_place(node.target):
        return []
    arguments = zip(node.target._schema.arguments, node.args, strict=False)  # type: ignore[union-attr]
    return [
        value
        for argument, given in arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for value in (given if isinstance(given, list | tuple) else [given])
        if isinstance(value, Node)
    ]


def _rebinding(
    graph: torch.fx.Graph,
) -> tuple[dict[Node, Node], tuple[Node, ...]] | None:
    """Return (same, written) when rebinding is right for the whole graph, else None."""
    order = {node: i for i, node in enumerate(graph.nodes)}
    same: dict[Node, Node] = {}
    root: dict[Node, Node] = {}  # a view -> what it views
    views: dict[Node, list[Node]] = defaultdict(list)
    written: list[Node] = []
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if _needs_torch(node):
            return None
        targets = [same.get(n, n) for n in _writes(node)]
        if targets:
            (target,) = targets[:1]
            alive = any(
                order[user] > order[node] for v in views[target] for user in v.users
            )
            if len(targets) > 1 or target in root or alive:
                return None
            same[node] = target
            if target.op == "placeholder" and target not in written:
                written.append(target)
        elif _is_view(node) and node.all_input_nodes:
            base = node.all_input_nodes[0]
            base = same.get(base, base)
            root[node] = root.get(base, base)
            views[root[node]].append(node)
    return same, tuple(written)


def _needs_torch(node: Node) -> bool:
    """Whether only torch can make the node explicit.

    A write that the schema hides, a write to a list or without a functional twin, or vmap's
    own calls, which torch leaves in a graph before it is decomposed.
    """
    if getattr(node.target, "__module__", "").startswith("torch._functorch"):
        return True
    flag = _TRAINING.get(node.target)
    if flag is not None and len(node.args) > flag and node.args[flag]:
        return True
    if any(isinstance(a, Node) and a.op == "get_attr" for a in node.args):
        return any(_writes(n) for n in node.graph.nodes)
    if not is_in_place(node.target):
        return False
    lists = any(isinstance(a, list | tuple) for a in node.args[:1])
    return lists or functional_twin(node.target) is None  # type: ignore[arg-type]


def _is_view(node: Node) -> bool:
    if node.target in _MAY_ALIAS:
        return True
    if getattr(node.target, "__name__", "") == "getitem":
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info for r in schema.returns)
