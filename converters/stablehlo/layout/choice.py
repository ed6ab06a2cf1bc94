"""Which equations are written with channels last: the choice that moves the fewest bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from jax.extend.core import JaxprEqn, Var

from tpu_export.converters.stablehlo.layout.cut import sink_side
from tpu_export.converters.stablehlo.layout.forms import (
    Form,
    from_last,
    is_variable,
    moves_nothing,
    shape_of,
    to_last,
)

Turn: TypeAlias = Literal["to last", "from last"] | None
_LAST, _FIRST = 0, 1  # the cut's ends: what is channels-last anyway, and what never is
_NEVER = 1 << 60
_OP = 256  # bytes that a move costs whatever it moves
_UNKNOWN = 64  # stands for a dimension whose size is not known yet


@dataclass(frozen=True)
class Program:
    """A flat program.

    Attributes:
        forms: of each equation; weights: arguments that are constants in the end.
        last_arguments: those that come with channels last; last_results: positions.
    """

    equations: Sequence[JaxprEqn]
    forms: Sequence[Form | None]
    arguments: Sequence[Var]
    results: Sequence[Any]
    weights: frozenset[Var] = frozenset()
    last_arguments: frozenset[Var] = frozenset()
    last_results: frozenset[int] = frozenset()

    def turns(self) -> list[Turn]:
        """Return which equations only move channels to the end, or back.

        Of three dimensions both are one order: it is the former for what a convolution
        made.
        """
        images: set[Var] = set()
        found: list[Turn] = []
        for eqn, form in zip(self.equations, self.forms, strict=True):
            turn = _turn(eqn, images)
            found.append(turn)
            read = [v for v in eqn.invars if is_variable(v)]
            if turn == "from last" or (form and any(v in images for v in read)):
                images.update(eqn.outvars)
        return found


def _turn(eqn: JaxprEqn, images: set[Var]) -> Turn:
    if eqn.primitive.name != "transpose" or not is_variable(eqn.invars[0]):
        return None
    order = tuple(eqn.params["permutation"])
    rank = len(order)
    if rank < 3 or order not in (to_last(rank), from_last(rank)):
        return None
    if rank == 3:
        return "to last" if eqn.invars[0] in images else "from last"
    return "to last" if order == to_last(rank) else "from last"


def chosen(program: Program) -> list[bool]:
    """Tell of each equation whether it is written with channels last."""
    graph = _Graph()
    graph.constants = set(program.weights)
    for v in program.arguments:
        graph.made_by[v] = _LAST if v in program.last_arguments else _FIRST
    turns = program.turns()
    node = 2
    for eqn, form, turn in zip(program.equations, program.forms, turns, strict=True):
        graph.add(eqn, form, turn, node)
        node += 1
    for i, v in enumerate(program.results):
        graph.read(v, _LAST if i in program.last_results else _FIRST)
    edges, count = graph.edges(node)
    first = sink_side(edges, count, _LAST, _FIRST)
    return [
        form is not None and any((*form.operands, *form.results)) and i + 2 not in first
        for i, form in enumerate(program.forms)
    ]


@dataclass
class _Graph:
    """A node for each equation; what a value costs to move is an edge."""

    made_by: dict[Var, int] = field(default_factory=dict)
    read_by: dict[Var, list[int]] = field(default_factory=lambda: defaultdict(list))
    constants: set[Var] = field(default_factory=set)

    def add(self, eqn: JaxprEqn, form: Form | None, turn: Turn, node: int) -> None:
        operands = form.operands if form else (False,) * len(eqn.invars)
        results = form.results if form else (False,) * len(eqn.outvars)
        for v, follows in zip(eqn.invars, operands, strict=True):
            fixed = _LAST if turn == "to last" else _FIRST
            self.read(v, node if follows else fixed)
        for v, follows in zip(eqn.outvars, results, strict=True):
            fixed = _LAST if turn == "from last" else _FIRST
            self.made_by[v] = node if follows else fixed
        read = [v for v in eqn.invars if is_variable(v)]
        if read and all(v in self.constants for v in read):
            self.constants.update(eqn.outvars)

    def read(self, v: Any, node: int) -> None:
        if is_variable(v) and len(shape_of(v)) > 2:
            self.read_by[v].append(node)

    def edges(self, count: int) -> tuple[list[tuple[int, int, int]], int]:
        """Return the edges, and the count of nodes with two more for each value.

        A value is moved once for all that read it.
        """
        found = []
        for v, readers in self.read_by.items():
            maker = self.made_by.get(v, _FIRST)
            distinct = set(readers) - {maker}
            if not distinct:
                continue
            cost = 1 if v in self.constants else _cost(v)
            found += [(maker, count, cost), (count + 1, maker, cost)]
            for reader in distinct:
                found += [(count, reader, _NEVER), (reader, count + 1, _NEVER)]
            count += 2
        return found, count


def _cost(v: Var) -> int:
    shape = shape_of(v)
    if moves_nothing(shape):
        return 2
    size: int = v.aval.dtype.itemsize  # type: ignore[attr-defined]  # arrays only
    for d in shape:
        size *= d if isinstance(d, int) else _UNKNOWN
    return size + _OP
