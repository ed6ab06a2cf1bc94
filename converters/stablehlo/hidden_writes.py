"""Writes that an op's schema hides: training norms update running statistics unannounced."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten
RUNNING_MEAN, RUNNING_VAR, TRAINING, MOMENTUM = 3, 4, 5, 6


def announce(graph: Graph) -> None:
    """Put ops that say that they write, which torch functionalizes, in place of such ops.

    torch.export keeps aten.instance_norm and aten.native_batch_norm as they are called, and
    its own decomposition then loses what they write.
    """
    for node in list(graph.nodes):
        if hides(node):
            _say(graph, node)


def announce_batch_norms(graph: Graph) -> None:
    """Do so for batch_norm in a body; torch knows what it writes in whole programs only."""
    for node in list(graph.nodes):
        if node.target is aten.batch_norm.default and _updates(node):
            node.target = aten._native_batch_norm_legit.default
            node.args = node.args[:8]
            with graph.inserting_after(node):
                first = graph.call_function(operator.getitem, (node, 0))
            first.meta = dict(node.meta)
            node.replace_all_uses_with(first)
            first.args = (node, 0)


def hides(node: Node) -> bool:
    """Whether the node writes running statistics, unknown to torch."""
    hiding = (aten.instance_norm.default, aten.native_batch_norm.default)
    return node.target in hiding and _updates(node)


def _updates(node: Node) -> bool:
    return isinstance(node.args[RUNNING_MEAN], Node) and bool(node.args[TRAINING])


def _say(graph: Graph, node: Node) -> None:
    if node.target is aten.native_batch_norm.default:
        node.target = aten._native_batch_norm_legit.default
        return
    x: Any = node.args[0]
    momentum: Any = node.args[MOMENTUM]
    writer = _Writer(graph, node)
    spatial = list(range(2, x.meta["val"].dim()))
    running: Any = node.args[RUNNING_MEAN : RUNNING_VAR + 1]
    for old, statistic in zip(
        running, (aten.mean.dim, aten.var.correction), strict=True
    ):
        wide = writer.call(aten.to.dtype, x, old.meta["val"].dtype)
        each = writer.call(statistic, wide, spatial)  # a sample; the variance unbiased
        mean = writer.call(aten.mean.dim, each, [0])
        kept = writer.call(aten.mul.Tensor, old, 1 - momentum)
        taken = writer.call(aten.mul.Tensor, mean, momentum)
        writer.call(aten.copy_.default, old, writer.call(aten.add.Tensor, kept, taken))
    node.args = (*node.args[:RUNNING_MEAN], None, None, *node.args[TRAINING:])


class _Writer:
    """Puts calls after a node, one after the other, with their fake results."""

    def __init__(self, graph: Graph, after: Node) -> None:
        self._graph = graph
        self._last = after

    def call(self, op: Any, *args: Any) -> Node:
        with self._graph.inserting_after(self._last):
            node = self._graph.call_function(op, args)
        values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
        node.meta = {k: v for k, v in self._last.meta.items() if k != "val"}
        node.meta["val"] = values[0] if op is aten.copy_.default else op(*values)
        self._last = node
        return node
