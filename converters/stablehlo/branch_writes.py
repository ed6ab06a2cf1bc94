"""Writes of branches and loop bodies to what is around them, as results of the op."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.errors import UnsupportedWriteError
from tpu_export.converters.stablehlo.rebinding import is_view, written_roots

_COND = torch.ops.higher_order.cond
_WHILE = torch.ops.higher_order.while_loop
_COPY = torch.ops.aten.copy_.default


def show_writes(module: GraphModule) -> None:
    """Give what bodies write to as further results, and copy them back after the op.

    Given:  bodies that end with their writes, copy_(input, value).
    Result: bodies that write nothing.

    Raises:
        UnsupportedWriteError: the values would differ from those of shared memory.
    """
    for node in list(module.graph.nodes):
        if node.target in (_COND, _WHILE):
            shared = {_root(operand) for operand in _returned(module, node)}
            last = (_branches if node.target is _COND else _loop)(module, node)
            if shared and not written_roots(module.graph, last).isdisjoint(
                {node, *shared}
            ):
                raise _unsupported(
                    node, "a result that may be an operand is written to"
                )


def _branches(module: GraphModule, node: Node) -> Node:
    bodies, operands = _parts(module, node)
    places = sorted({place for body in bodies for place in _written(body)})
    if not places:
        return node
    _check_apart(module, node, operands, places)
    for body in bodies:
        _return_writes(body, places)
    return _copy_back(module, node, [operands[p] for p in places])


def _loop(module: GraphModule, node: Node) -> Node:
    """Carry what the body writes to."""
    (test, body), operands = _parts(module, node)
    given: Any = node.args
    carried = len(given[2])
    places = sorted(_written(body))
    if _written(test) or any(place < carried for place in places):
        raise _unsupported(
            node, "a loop writes to what it carries, or in its condition"
        )
    node.kwargs = {}  # torch's own list of the places
    if not places:
        return node
    _check_apart(module, node, operands, places)
    _return_writes(body, places)
    order = [*range(carried), *places]
    order += [p for p in range(len(operands)) if p not in order]
    for graph in (test, body):
        _reorder(graph, order)
    moved = [operands[p] for p in order]
    split = carried + len(places)
    node.args = (*given[:2], tuple(moved[:split]), tuple(moved[split:]))
    return _copy_back(module, node, [operands[p] for p in places])


def _parts(module: GraphModule, node: Node) -> tuple[list[GraphModule], list[Any]]:
    """Return both graphs of the op, and what they take."""
    first = 1 if node.target is _COND else 0
    given: Any = node.args[first:]
    operands = [x for part in given[2:] for x in part]
    return [attrgetter(graph.target)(module) for graph in given[:2]], operands


def _inputs(body: GraphModule) -> list[Node]:
    return [n for n in body.graph.nodes if n.op == "placeholder"]


def _copies(body: GraphModule) -> list[Node]:
    return [n for n in body.graph.nodes if n.target is _COPY]


def _written(body: GraphModule) -> list[int]:
    """Return which inputs the body writes to."""
    written = {copy.args[0] for copy in _copies(body)}
    return [place for place, node in enumerate(_inputs(body)) if node in written]


def _check_apart(
    module: GraphModule, node: Node, operands: Sequence[Any], places: Sequence[int]
) -> None:
    """Refuse operands that share memory, and bodies of several ops: each has its writes."""
    memory = [_memory(x) for x in operands]
    if any(memory.count(memory[p]) > 1 for p in places):
        raise _unsupported(node, "it shares memory with another operand")
    given: Any = node.args[:3]
    graphs = {x.target for x in given if getattr(x, "op", "") == "get_attr"}
    users = [
        user
        for n in module.graph.nodes
        if n.op == "get_attr" and n.target in graphs
        for user in n.users
    ]
    if any(user is not node for user in users):
        raise _unsupported(node, "several ops have the same body")


def _memory(operand: Any) -> object:
    value = operand.meta.get("val") if isinstance(operand, Node) else operand
    if isinstance(value, torch.Tensor):
        return value.untyped_storage()._cdata
    return operand


def _return_writes(body: GraphModule, places: Sequence[int]) -> None:
    inputs, news = _inputs(body), dict[Any, Any]()
    for copy in _copies(body):
        target, value = copy.args[:2]
        news[target] = value
        copy.replace_all_uses_with(value)  # type: ignore[arg-type]
        body.graph.erase_node(copy)
    (output,) = (n for n in body.graph.nodes if n.op == "output")
    with body.graph.inserting_before(output):
        results = [news.get(inputs[p]) or _same(body, inputs[p]) for p in places]
    given: Any = output.args[0]
    output.args = ((*given, *results),)
    body.recompile()


def _same(body: GraphModule, node: Node) -> Node:
    """Return a value that is no memory of the node: torch wants that of results."""
    new = body.graph.call_function(torch.ops.aten.clone.default, (node,))
    new.meta = dict(node.meta)
    return new


def _reorder(body: GraphModule, order: Sequence[int]) -> None:
    inputs = _inputs(body)
    rest = next(n for n in body.graph.nodes if n.op != "placeholder")
    for place in order:
        rest.prepend(inputs[place])
    body.recompile()


def _copy_back(module: GraphModule, node: Node, written: Sequence[Node]) -> Node:
    """Write the further results after the op; return the last write."""
    graph, values = module.graph, [operand.meta["val"] for operand in written]
    count, after = len(node.meta["val"]), node
    node.meta["val"] = (*node.meta["val"], *values)
    for place, operand in enumerate(written, count):
        with graph.inserting_after(after):
            new = graph.call_function(operator.getitem, (node, place))
        with graph.inserting_after(new):
            after = graph.call_function(_COPY, (operand, new))
        new.meta = after.meta = {**node.meta, "val": operand.meta["val"]}
    return after


def _returned(module: GraphModule, node: Node) -> list[Node]:
    """Return the operands that results may be the memory of."""
    bodies, operands = _parts(module, node)
    found = set()
    for body in bodies:
        (output,) = (n for n in body.graph.nodes if n.op == "output")
        results = [r for r in pytree.tree_leaves(output.args[0]) if isinstance(r, Node)]
        kept = {copy.args[1]: copy.args[0] for copy in _copies(body)}
        roots = {kept.get(root, root) for root in map(_root, results)}
        found |= {p for p, x in enumerate(_inputs(body)) if x in roots}
    return [operands[p] for p in sorted(found) if isinstance(operands[p], Node)]


def _root(node: Node) -> Node:
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _unsupported(node: Node, reason: str) -> UnsupportedWriteError:
    name = getattr(node.target, "__name__", str(node.target))
    return UnsupportedWriteError(
        f"a write in {name} cannot be made explicit: {reason}",
        hint="return the new value from the branch or body, and write it after the op",
    )
