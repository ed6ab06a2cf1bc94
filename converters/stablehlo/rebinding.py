"""Whether writes in a graph are no more than new values for the names of whole tensors."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from tpu_export.converters.stablehlo.in_place import (
    functional_twin,
    is_in_place,
    writes,
)

aten = torch.ops.aten
# They write to arguments from the third on, when the fifth says that they train.
_TRAINING: dict[Any, int] = {aten.batch_norm.default: 5}


def rebinding(graph: Graph) -> tuple[dict[Node, Node], tuple[Node, ...]] | None:
    """Return (same, written) when rebinding is right for the whole graph, else None.

    `same` says of the result of an in-place op whose tensor it is; `written` are the
    placeholders that get a new value, in order.
    """
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
        targets = [same.get(n, n) for n in writes(node)]
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
        elif is_view(node) and node.all_input_nodes:
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
    if trains(node):
        return True
    if not is_in_place(node.target):
        return False
    lists = any(isinstance(a, list | tuple) for a in node.args[:1])
    return lists or functional_twin(node.target) is None


def trains(node: Node) -> bool:
    """Whether a norm takes statistics of the batch, and keeps them."""
    flag = _TRAINING.get(node.target)
    return flag is not None and len(node.args) > flag and bool(node.args[flag])


def is_view(node: Node) -> bool:
    """Whether the result may be memory of the first input."""
    if getattr(node.target, "__name__", "") == "getitem":
        return True
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info for r in schema.returns)


def written_roots(graph: Graph, after: Node | None = None) -> set[Node]:
    """Return what is written to, by itself or through views; after a node, if one is given."""
    root: dict[Node, Node] = {}
    found: set[Node] = set()
    for node in graph.nodes:
        targets = writes(node)
        if trains(node):
            targets = [n for n in node.args[3:5] if isinstance(n, Node)]
        found.update(root.get(n, n) for n in targets)
        if (targets or is_view(node)) and node.all_input_nodes:
            first = node.all_input_nodes[0]
            root[node] = root.get(first, first)
        if node is after:
            found.clear()
    return found


def rebind(module: GraphModule) -> bool:
    """Put functional ops in the place of in-place ones in a body; False where not right."""
    found = rebinding(module.graph)
    if found is None or found[1]:
        return False
    same, newest = found[0], dict[Node, Node]()

    def now(node: Node) -> Node:
        return newest.get(same.get(node, node), node)

    for node in list(module.graph.nodes):
        node.args, node.kwargs = map_arg((node.args, node.kwargs), now)
        if node in same:
            newest[same[node]] = _functional(module.graph, node, same[node])
    return True


def _functional(graph: Graph, node: Node, written: Node) -> Node:
    """Make an op functional; return the value in the dtype of what it was written to."""
    twin = functional_twin(node.target)
    assert twin is not None, "found by rebinding()"
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    with torch.no_grad():
        value = twin(*args, **kwargs)
    dtype = written.meta["val"].dtype
    node.target, node.meta["val"] = twin, value
    if value.dtype == dtype:
        return node
    with graph.inserting_after(node):
        new = graph.call_function(aten.to.dtype, (node, dtype))
    new.meta = {**node.meta, "val": value.to(dtype)}
    return new
