"""as_strided in terms of tensors that lie in memory row by row, as its rules take them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.location import scope, spoken
from tpu_export.converters.stablehlo.rebinding import is_view

aten = torch.ops.aten
_VIEWS = {
    aten.as_strided.default,
    aten.as_strided_.default,
    aten.as_strided_copy.default,
}
_SCATTER = aten.as_strided_scatter.default
STRIDED = frozenset({*_VIEWS, _SCATTER})


def plain_strides(graph: Graph) -> None:
    """Make every as_strided one of a tensor without gaps, in row-major order, at offset 0.

    Raises:
        UnsupportedOptionError: it reads memory that no tensor of the graph is.
    """
    for node in list(graph.nodes):
        if node.target in STRIDED and not _is_plain(node):
            _make_plain(graph, node)


def _arguments(node: Node) -> tuple[Sequence[int], Sequence[int], int | None]:
    """Return size, stride and offset."""
    start = 2 if node.target is _SCATTER else 1
    size, stride, *rest = node.args[start:]
    offset: Any = rest[0] if rest else node.kwargs.get("storage_offset")
    return size, stride, offset  # type: ignore[return-value]  # as the schema has them


def _is_plain(node: Node) -> bool:
    x: Any = node.args[0]
    value = x.meta["val"]
    size, stride, offset = _arguments(node)
    if not all(isinstance(n, int) for n in (*value.shape, *size, *stride)):
        return True  # the rule refuses sizes that are not known
    if not value.is_contiguous() or (offset is not None and value.storage_offset()):
        return False
    return bool(_last(size, stride) + (offset or 0) < value.numel())


def _last(size: Sequence[int], stride: Sequence[int]) -> int:
    """Return how far the last element is from the first."""
    return sum((n - 1) * step for n, step in zip(size, stride, strict=True))


def _make_plain(graph: Graph, node: Node) -> None:
    size, stride, offset = _arguments(node)
    x: Any = node.args[0]
    place = x.meta["val"].storage_offset() if offset is None else offset
    owner = x if node.target is _SCATTER else _owner(x)
    value = owner.meta["val"]
    place -= value.storage_offset()
    order = _row_major(value)
    if order is None or place < 0 or place + _last(size, stride) >= value.numel():
        raise UnsupportedOptionError(
            f"as_strided reads memory between the elements of its input, at {spoken(scope(node))}",
            hint="call contiguous() before as_strided(), or index instead",
        )
    with graph.inserting_before(node):
        whole = graph.call_function(aten.permute.default, (owner, order))
    whole.meta = {**node.meta, "val": value.permute(order)}
    if node.target is not _SCATTER:
        node.args, node.kwargs = (whole, size, stride, place), {}
        return
    node.args, node.kwargs = (whole, node.args[1], size, stride, place), {}
    back = [order.index(dim) for dim in range(len(order))]
    with graph.inserting_after(node):
        result = graph.call_function(aten.permute.default, (node, back))
    result.meta, node.meta["val"] = dict(node.meta), whole.meta["val"]
    node.replace_all_uses_with(result, lambda user: user is not result)


def _owner(node: Node) -> Node:
    """Return what a view is a view of, at the end."""
    while node.op == "call_function" and is_view(node) and node.all_input_nodes:
        base = node.all_input_nodes[0]
        value = base.meta.get("val")
        if not isinstance(value, torch.Tensor):
            break
        node = base
    return node


def _row_major(value: torch.Tensor) -> list[int] | None:
    """Return the order of axes in which the elements follow one another in memory."""
    strides = value.stride()
    order = sorted(range(value.dim()), key=lambda d: (-strides[d], d))
    steps = [strides[d] for d in order]
    sizes = [value.shape[d] for d in order]
    dense = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    fits = all(n == 1 or s == d for n, s, d in zip(sizes, steps, dense, strict=True))
    return order if fits else None
