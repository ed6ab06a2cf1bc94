"""Regions of a mode, such as `with torch.no_grad()`, in line with what is around them.

torch.export makes a graph of each region, unless it holds control flow: then calls that enter
and leave the mode stay among the ops. A mode of gradients changes no value. Autocast casts
what its ops take; the graph has the dtypes that come out, but not the casts.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.graph_copy import splice

aten = torch.ops.aten
# Made of products, each of which autocast lowers.
_RECURRENT = frozenset(
    {aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input}
)
_HIGHER = torch.ops.higher_order
_GRADIENTS = _HIGHER.wrap_with_set_grad_enabled
_AUTOCAST = _HIGHER.wrap_with_autocast
_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast
_SWITCHES = frozenset({_ENTER, _EXIT, torch._C._set_grad_enabled})
REGIONS = frozenset({_GRADIENTS, _AUTOCAST}) | _SWITCHES


def inline_regions(module: GraphModule, autocast: torch.dtype | None = None) -> None:
    """Put the graph of each region in its place, with autocast's casts spelled out.

    Args:
        module: changed in place, as are the graphs in it.
        autocast: what the surroundings cast to.
    """
    modes = [autocast]
    nodes = list(module.graph.nodes)
    for node in nodes:
        if node.target is _ENTER:
            _, dtype, enabled, _ = node.args
            modes.append(dtype if enabled else None)
        elif node.target is _EXIT:
            modes.pop()
        elif node.target in (_GRADIENTS, _AUTOCAST):
            _inline(module, node, modes[-1])
        else:
            _spell_out(module, node, modes[-1])
    for node in reversed(nodes):
        if node.target in _SWITCHES:
            module.graph.erase_node(node)


def _spell_out(module: GraphModule, node: Node, autocast: torch.dtype | None) -> None:
    """Cast what an op takes, or look into the bodies of control flow."""
    if autocast is not None and isinstance(node.target, OpOverload):
        _cast(module.graph, node, autocast)
        return
    for attribute in node.all_input_nodes:
        if attribute.op == "get_attr":
            body = attrgetter(str(attribute.target))(module)
            if isinstance(body, GraphModule):
                inline_regions(body, autocast)


def _inline(module: GraphModule, node: Node, autocast: torch.dtype | None) -> None:
    args: Any = node.args
    if node.target is _AUTOCAST:
        _, dtype, enabled, _, attribute, *operands = args
        autocast = dtype if enabled else None
    else:
        _, attribute, *operands = args
    inner = attrgetter(attribute.target)(module)
    inline_regions(inner, autocast)
    splice(module, node, inner, operands)
    if not attribute.users:
        module.graph.erase_node(attribute)
        module.delete_submodule(attribute.target)


def _cast(graph: Graph, node: Node, lower: torch.dtype) -> None:
    """Cast what an op of an autocast region takes, to what gives the dtype that it gave."""
    wanted = _dtypes(node.meta.get("val"))
    if (
        _is_listed(node)
        and len(set(wanted)) == 1
        and wanted[0] in (lower, torch.float32)
    ):
        _cast_operands(graph, node, wanted[0])
    elif wanted and _given(node, None) != wanted:
        for dtype in (lower, torch.float32):
            if _given(node, dtype) == wanted:
                _cast_operands(graph, node, dtype)
                return


def _is_listed(node: Node) -> bool:
    """Whether autocast has a policy for the op: all that it takes has the result's dtype.

    Its result does not tell: on fake tensors a product of two dtypes is of the first.
    """
    assert isinstance(node.target, OpOverload)
    if node.target in _RECURRENT:
        return True
    name = node.target.name()
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "AutocastCPU")


def _cast_operands(graph: Graph, node: Node, dtype: torch.dtype) -> None:
    casted = partial(_casted, graph, dtype=dtype)
    with graph.inserting_before(node):
        node.args, node.kwargs = map_arg((node.args, node.kwargs), casted)


def _casted(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    value: Any = node.meta.get("val")
    if not _is_cast(value) or value.dtype == dtype:
        return node
    new = graph.call_function(aten.to.dtype, (node, dtype))
    new.meta = {**node.meta, "val": value.to(dtype)}
    return new


def _is_cast(value: Any) -> bool:
    """Whether autocast casts the value: floating-point tensors but those of double."""
    return isinstance(value, torch.Tensor) and (
        value.is_floating_point() and value.dtype != torch.float64
    )


def _given(node: Node, dtype: torch.dtype | None) -> list[torch.dtype]:
    """Return the dtypes that an op gives when what it takes is cast; [] when it refuses."""

    def operand(node: Node) -> Any:
        value = node.meta["val"]
        return value.to(dtype) if dtype is not None and _is_cast(value) else value

    args, kwargs = map_arg((node.args, node.kwargs), operand)
    try:
        with torch.no_grad():
            return _dtypes(node.target(*args, **kwargs))  # type: ignore[operator]
    except RuntimeError:  # operands of several dtypes
        return []


def _dtypes(value: Any) -> list[torch.dtype]:
    return [x.dtype for x in pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
