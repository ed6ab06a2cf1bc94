"""Ops that write to what they take."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.fx import Node


def is_in_place(op: object) -> bool:
    """Whether the op writes to one of its arguments."""
    return isinstance(op, OpOverload) and op._schema.is_mutable


def functional_twin(op: object) -> OpOverload | None:
    """Return the overload that computes what an in-place overload writes.

    >>> functional_twin(torch.ops.aten.add_.Tensor)
    <OpOverload(op='aten.add', overload='Tensor')>
    """
    if not isinstance(op, OpOverload):
        return None
    namespace, name = op._schema.name.split("::")
    if not name.endswith("_"):
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    return getattr(packet, op._overloadname, None)


def writes(node: Node) -> list[Node]:
    """Return the nodes whose tensors an op writes to."""
    if not isinstance(node.target, OpOverload) or not is_in_place(node.target):
        return []
    arguments = node.target._schema.arguments
    by_place = zip(arguments, node.args, strict=False)
    by_name = [(a, node.kwargs[a.name]) for a in arguments if a.name in node.kwargs]
    return [
        value
        for argument, given in (*by_place, *by_name)
        if argument.alias_info is not None and argument.alias_info.is_write
        for value in (given if isinstance(given, list | tuple) else [given])
        if isinstance(value, Node)
    ]
