"""Writes in place that write nothing: dropout_ in eval gives back the tensor that it took.

Left in the graph, one after a view would make torch trace the whole model again.
"""

from __future__ import annotations

import torch
from torch.fx import Graph

aten = torch.ops.aten
_DROPOUTS = frozenset(
    {
        aten.dropout_.default,
        aten.feature_dropout_.default,
        aten.alpha_dropout_.default,
        aten.feature_alpha_dropout_.default,
    }
)


def drop_idle_writes(graph: Graph) -> None:
    """Take them out, but for results, whose names the signature of the graph tells."""
    for node in list(graph.nodes):
        if node.target not in _DROPOUTS or node.args[2:3] != (False,):
            continue
        if all(user.op != "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
