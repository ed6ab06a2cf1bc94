"""Ranges of the inputs that a model uses as indices: torch raises IndexError outside them.

An input counts where every call reads a table at all of its values: it reaches the index of
an embedding, a bag, index_select, gather, take or index through ops that keep each value, or
add a constant to it. Tables of a size that is not fixed give no range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import Node

from tpu_export.converters.stablehlo.location import module_path, source_line
from tpu_export.runtime.signature import InputRange, Signature

aten = torch.ops.aten
# A use of a node as an index: the table, its axis (None: the flat table), and whether
# negative places count from the end.
Use: TypeAlias = tuple[Any, int | None, bool]

_DTYPES = (torch.int64, torch.int32)
_NEAR = 2**30  # so that a sum with a constant never wraps into the range
_KEEP = frozenset(
    (
        aten.alias.default, aten.clone.default, aten.contiguous.default,
        aten.detach.default, aten.detach_.default, aten.expand.default,
        aten.flatten.using_ints, aten.lift_fresh_copy.default, aten.permute.default,
        aten.ravel.default, aten.reshape.default, aten.squeeze.default,
        aten.squeeze.dim, aten.squeeze.dims, aten.t.default, aten.transpose.int,
        aten.unflatten.int, aten.unsqueeze.default, aten.view.default,
        aten._unsafe_view.default,
        aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten._to_copy.default,
        aten.type_as.default,
    )
)  # fmt: skip


def index_ranges(
    program: ExportedProgram, signature: Signature
) -> tuple[InputRange, ...]:
    """Return the range of each input that is used as an index, in order of the inputs."""
    names = iter([spec.name for spec in signature.inputs])
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    stored = {
        node: spec.target
        for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True)
    }
    found = []
    for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
        if spec.kind != InputKind.USER_INPUT or isinstance(spec.arg, ConstantArgument):
            continue
        name = next(names)
        values = [*_ranges(node, stored)] if _is_index(node) else []
        if values:
            found.append(_tightest(name, values))
    return tuple(found)


def _tightest(name: str, values: Sequence[tuple[int, int, str]]) -> InputRange:
    """Return what all ranges allow, because of the one that allows least above."""
    _, high, because = min(values, key=lambda v: v[1])
    return InputRange(name, max(low for low, _, _ in values), high, because)


def _is_index(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _DTYPES


def _ranges(start: Node, stored: dict[Node, Any]) -> Iterator[tuple[int, int, str]]:
    """Yield (low, high, because) of each table that is read at all values of an input."""
    reached = [*_reached(start)]
    if any(_is_written(node) for node, _ in reached):
        return
    for node, added in reached:
        for user in node.users:
            for table, axis, negative in _uses(user, node):
                size = _size(table, axis)
                if size is not None and size + abs(added) < _NEAR:
                    low = -size if negative else 0
                    because = _because(table, size, user, stored)
                    yield low - added, size - 1 - added, because


def _reached(start: Node) -> Iterator[tuple[Node, int]]:
    """Yield the nodes that have exactly the values of a node, plus a constant."""
    pending = [(start, 0)]
    while pending:
        node, added = pending.pop()
        yield node, added
        for user in node.users:
            more = _kept(user, node)
            if more is not None and abs(added + more) < _NEAR:
                pending.append((user, added + more))


def _kept(user: Node, node: Node) -> int | None:
    """Return what an op adds to each value of its operand; None where it does else."""
    if not _is_index(user) or user.args[:1] != (node,):
        return None
    if user.target in _KEEP:
        before, after = node.meta["val"], user.meta["val"]
        narrower = after.dtype.itemsize < before.dtype.itemsize
        lost = user.target is aten.expand.default and not _as_many(before, after)
        return None if narrower or lost else 0
    if user.target in (
        aten.add.Tensor,
        aten.add.Scalar,
        aten.sub.Tensor,
        aten.sub.Scalar,
    ):
        other = user.args[1] if len(user.args) == 2 and not user.kwargs else None
        if type(other) is int:
            return -other if "sub" in str(user.target) else other
    return None


def _as_many(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether expand() leaves no value out, as it does for a size of 0."""
    known = [str(size) for size in before.shape]
    return all(_positive(s) or str(s) in known for s in after.shape)


def _positive(size: Any) -> bool:
    return isinstance(size, int) and size > 0


def _is_written(node: Node) -> bool:
    """Whether an op writes to a node, perhaps through a view of it."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is None:
            if user.op != "output":
                return True
            continue
        given = dict(zip((a.name for a in schema.arguments), user.args, strict=False))
        given |= user.kwargs
        aliases = [
            a.alias_info
            for a in schema.arguments
            if a.alias_info is not None and _holds(given.get(a.name), node)
        ]
        if any(alias.is_write for alias in aliases) or (aliases and _is_written(user)):
            return True
    return False


def _holds(value: Any, node: Node) -> bool:
    return value is node or (isinstance(value, list | tuple) and node in value)


def _uses(user: Node, node: Node) -> Iterator[Use]:
    read = _READS.get(user.target) if user.op == "call_function" else None
    if read is not None:
        yield from read(user.args, node)


def _embedding(args: Any, node: Node) -> Iterator[Use]:
    if args[1] is node and _positive(args[0].meta["val"].shape[1]):
        yield args[0], 0, False


def _bag(args: Any, node: Node) -> Iterator[Use]:
    """Every index is in a bag, unless there is none, or the last offset ends before it."""
    ends_early = len(args) > 7 and args[7]  # include_last_offset
    width = args[0].meta["val"].shape[1]
    if args[1] is node and _positive(width) and _is_fixed(args[2]) and not ends_early:
        yield args[0], 0, False


def _index_select(args: Any, node: Node) -> Iterator[Use]:
    if args[2] is node and _is_fixed(args[0]):
        yield args[0], args[1], False


def _gather(args: Any, node: Node) -> Iterator[Use]:
    """The index has as many values as the result: each is looked at."""
    if args[2] is node:
        yield args[0], args[1], False


def _take(args: Any, node: Node) -> Iterator[Use]:
    if args[1] is node:
        yield args[0], None, True


def _index(args: Any, node: Node) -> Iterator[Use]:
    others = [i for i in args[1] if i is not None]
    if not _is_fixed(args[0]) or not all(i is node or _is_fixed(i) for i in others):
        return
    if all(_is_index(i) for i in others):
        yield from ((args[0], d, True) for d, i in enumerate(args[1]) if i is node)


def _is_fixed(table: Node) -> bool:
    """Whether all sizes are known and none is 0, where torch would look at no index."""
    return all(map(_positive, table.meta["val"].shape))


_READS: dict[object, Callable[[Any, Node], Iterator[Use]]] = {
    aten.embedding.default: _embedding,
    aten.embedding_bag.default: _bag,
    aten.embedding_bag.padding_idx: _bag,
    aten._embedding_bag.default: _bag,
    aten._embedding_bag_forward_only.default: _bag,
    aten.index_select.default: _index_select,
    aten.gather.default: _gather,
    aten.take.default: _take,
    aten.index.Tensor: _index,
}


def _size(table: Node, axis: int | None) -> int | None:
    """Return how many places an axis has; None where that is not fixed."""
    shape = table.meta["val"].shape
    sizes = [*shape] if axis is None else [shape[axis]] if shape else []
    return math.prod(sizes) if sizes and all(map(_positive, sizes)) else None


def _because(table: Node, size: int, user: Node, stored: dict[Node, Any]) -> str:
    module = module_path(user)
    name = stored.get(table)
    if name is not None:  # a tied weight has another module's name
        name = name if not module else f"{module}.{name.rpartition('.')[2]}"
        return f"{name} has {size} rows"
    return f"{user.target} of {module or source_line(user)} reads {size} places"
