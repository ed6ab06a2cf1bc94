"""Ops whose results are their inputs' memory although the schema does not say so.

torch.meshgrid, atleast_2d, broadcast_tensors, einsum of one operand, dropout that drops nothing …:
what is written to the result is written to the input, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.decompose import trace
from tpu_export.converters.stablehlo.graph_copy import splice

aten = torch.ops.aten
# Most nodes of many models are one of these, and to ask torch takes a millisecond each.
_NEVER = frozenset(
    {
        aten.batch_norm.default,
        aten.conv1d.default,
        aten.conv2d.default,
        aten.conv3d.default,
        aten.layer_norm.default,
        aten.linear.default,
    }
)


def show_aliases(module: GraphModule) -> None:
    """Put views, which torch knows for what they are, in the place of such ops."""
    for node in list(module.graph.nodes):
        if _may_alias(node) and _aliases(node):
            _replace(module, node)


def _replace(module: GraphModule, node: Node) -> None:
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Node)]

    def call(*inputs: Any) -> Any:
        given = list(leaves)
        for place, value in zip(places, inputs, strict=True):
            given[place] = value
        args, kwargs = pytree.tree_unflatten(given, spec)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    operands = [leaves[i] for i in places]
    inner = trace(call, [n.meta["val"] for n in operands], {})
    splice(module, node, inner, operands)


def _may_alias(node: Node) -> bool:
    op = node.target
    if not isinstance(op, OpOverload) or op in _NEVER or op._schema.is_mutable:
        return False
    if any(result.alias_info for result in op._schema.returns):
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), "CompositeImplicitAutograd"
    )


def _aliases(node: Node) -> bool:
    """Whether the op gives the memory of what it takes, asked of torch's fake tensors."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    try:
        with torch.no_grad():
            results: Any = node.target(*args, **kwargs)  # type: ignore[operator]
    except RuntimeError:  # torch cannot say: it computes by data
        return False
    return not set(_memory(results)).isdisjoint(_memory((args, kwargs)))


def _memory(values: Any) -> Iterator[int]:
    for value in pytree.tree_leaves(values):
        if isinstance(value, torch.Tensor):
            yield value.untyped_storage()._cdata
