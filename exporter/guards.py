"""What torch took for granted about sizes while it traced, as constraints on each call.

torch writes a guard for every branch that a model (or torch itself) takes on a size. The ones
that a range cannot say, such as x.size(0) <= y.size(0), it leaves in a private list of Python
expressions. They are data here: parsed against a closed grammar, never evaluated as code.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch.export import ExportedProgram

from tpu_export.exporter.refusals import DimRangeError
from tpu_export.exporter.trees import Path
from tpu_export.runtime.expressions import (
    constraint_names,
    holds,
    names_in,
    relation,
)
from tpu_export.runtime.signature import Dim, DimSize, Shape

_OPERATORS: dict[type[ast.cmpop], str] = {
    ast.LtE: "<=", ast.GtE: ">=", ast.Lt: "<", ast.Gt: ">", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
# torch asks of every size, and of products and strides, whether it is 0 or 1, and writes the
# answer down: so an inequality that only sizes below 2 break is one of these.
_ZERO_OR_ONE = re.compile(r"(!= [01]|>= 2|> 1)\Z|\A([01] !=|2 <=|1 <) ")
_TWO = 2
_DENSE, _FAR, _MANY = 16, 2**20, 50_000


@dataclass(frozen=True)
class Leaves:
    """Where guards find sizes.

    Attributes:
        shapes: of the input tensors, by path.
        numbers: names of the inputs that are whole numbers, by path.
    """

    shapes: Mapping[Path, Shape]
    numbers: Mapping[Path, str]


class _UnknownGuardError(ValueError):
    """A guard that no constraint can say."""


def read_constraints(
    program: ExportedProgram,
    leaves: Leaves,
    dims: Sequence[Dim],
    promised: Collection[str],
) -> tuple[str, ...]:
    """Return what holds for the graph besides the ranges of its dimensions.

    Args:
        program: of torch.export, fresh or loaded.
        leaves: the inputs.
        dims: the dynamic dimensions and their ranges.
        promised: names of the dimensions whose range the user gave.

    Raises:
        DimRangeError: a promised range does not hold, or a guard cannot be checked.
    """
    found: dict[str, None] = {}
    for guard in getattr(program, "_guards_code", None) or ():
        try:
            parts = dict.fromkeys(
                _constraints(ast.parse(guard, mode="eval").body, leaves, dims)
            )
        except (_UnknownGuardError, SyntaxError, ValueError) as error:
            raise DimRangeError(
                f"the graph holds only where {_readable(guard)}, which no call can check",
                hint="compute with torch.where or torch.cond where the model branches on "
                "this size, or make its axis static",
            ) from error
        found |= parts
    for constraint in found:
        names = constraint_names(constraint)
        if len(names) == 1 and names <= set(promised):
            raise DimRangeError(
                f"the model does not hold for every {min(names)}: only where {constraint}",
                hint=f"give Dim({min(names)!r}) a range (min=, max=) in which that holds, "
                "or a multiple of a Dim as the size",
            )
    return tuple(found)


def _constraints(node: ast.expr, leaves: Leaves, dims: Sequence[Dim]) -> Iterator[str]:
    """Yield the relations of a guard that the ranges do not imply."""
    for clause in _clauses(node, leaves):
        if _says_something(clause, dims):
            if len(clause) != 1:
                raise _UnknownGuardError
            yield clause[0]


def _clauses(node: ast.expr, leaves: Leaves) -> Iterator[tuple[str, ...]]:
    """Yield relations of which one must hold each, "a and (b or c)" as (a,), (b, c)."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            for value in values:
                yield from _clauses(value, leaves)
        case ast.BoolOp(op=ast.Or(), values=values):
            for choice in itertools.product(*(_clauses(v, leaves) for v in values)):
                yield tuple(relation for clause in choice for relation in clause)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            sides = [_side(side, leaves) for side in (left, *rights)]
            for (a, b), op in zip(itertools.pairwise(sides), ops, strict=True):
                if a is not None and b is not None:
                    yield (f"{a} {_OPERATORS[type(op)]} {b}",)
        case ast.Constant(value=True):
            return
        case _:
            raise _UnknownGuardError


def _side(node: ast.expr, leaves: Leaves) -> str | None:
    """Return an expression in dimension names; None where it is about no size."""
    if _asks_layout(node):
        return None  # inputs of an artifact are dense
    text = ast.unparse(_Sizes(leaves).visit(node))
    names_in(text)  # in the grammar of docs/tpuexe.md
    return text


def _asks_layout(node: ast.expr) -> bool:
    attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return bool(attributes & {"stride", "storage_offset"})


class _Sizes(ast.NodeTransformer):
    """L['x'].size()[0] as the dimension's name or expression."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=source, attr="size"), args=[]),
                slice=ast.Constant(value=int(axis)),
            ):
                shape = self._leaves.shapes.get(_path(source))
                if shape is None:
                    raise _UnknownGuardError
                return _expression(shape[axis])
        name = self._leaves.numbers.get(_path(node))
        if name is None or not name.isidentifier():
            raise _UnknownGuardError
        return ast.Name(name)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="max" | "min"), args=[first, *rest]):
                for other in rest:
                    first = ast.Call(node.func, [first, other], [])
                return first
        raise _UnknownGuardError


def _expression(size: DimSize) -> ast.expr:
    return ast.parse(str(size), mode="eval").body


def _path(node: ast.expr) -> Path:
    """Return the keys of L['x'][0].field."""
    match node:
        case ast.Name(id="L"):
            return ()
        case ast.Subscript(value=value, slice=ast.Constant(value=key)):
            return (*_path(value), key)
        case ast.Attribute(value=value, attr=name):
            return (*_path(value), name)
    raise _UnknownGuardError


def _says_something(clause: Sequence[str], dims: Sequence[Dim]) -> bool:
    """Whether some sizes in range break it, or it is about a number of the caller's."""
    if any(_ZERO_OR_ONE.search(part) for part in clause):
        return False
    names = {name for part in clause for name in constraint_names(part)}
    least = _TWO if all(relation(part)[1] == "!=" for part in clause) else 0
    ranges = {dim.name: _samples(dim, least) for dim in dims if dim.name in names}
    if set(ranges) != names:
        return True
    grid = itertools.islice(itertools.product(*ranges.values()), _MANY)
    return not all(
        any(holds(part, dict(zip(ranges, sizes, strict=True))) for part in clause)
        for sizes in grid
    )


def _samples(dim: Dim, least: int) -> list[int]:
    """Return sizes of the range from `least` on, the far ends first."""
    bottom = max(dim.minimum, least)
    top = _FAR if dim.maximum is None else dim.maximum
    sizes = range(bottom, top + 1)
    return [*sizes[-2:], *sizes[:_DENSE]]


def _readable(guard: str) -> str:
    short = re.sub(r"L\['([^']+)'\]", r"\1", guard)
    return re.sub(r"\.size\(\)\[(\d+)\]", r".shape[\1]", short)
