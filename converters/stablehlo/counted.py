"""Sizes that the data decides: how many places a mask selects, an item() used as a size.

Each becomes a dimension like that of an input. Main takes it as the shape of one argument more,
and the trace counts it besides; counting becomes a function of its own, which runs first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sympy
import torch
from jax import export
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.mutating import called_op
from tpu_export.converters.stablehlo.shapes import DIM_FUNCTIONS, spelled
from tpu_export.runtime.expressions import evaluate, names_in
from tpu_export.runtime.signature import Dim, Signature

aten = torch.ops.aten
_OPERATORS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})",
    "floordiv": "floordiv({}, {})", "mod": "mod({}, {})",
}  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """The sizes of a graph that its data decides.

    Attributes:
        dims: as dimensions, with torch's ranges.
        names: of the dimension, by torch's symbol.
        equal: pairs of expressions in dimension names that torch requires to be equal.
    """

    dims: tuple[Dim, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    equal: tuple[tuple[str, str], ...] = ()

    @property
    def constraints(self) -> tuple[str, ...]:
        """What must hold between sizes, in the words of a signature."""
        return tuple(f"{a} == {b}" for a, b in self.equal)

    @property
    def may_be_zero(self) -> bool:
        """Whether one of the sizes may be 0."""
        return any(dim.minimum == 0 for dim in self.dims)

    def not_empty(self) -> Counted:
        """Return the same with sizes of at least 1."""
        dims = tuple(replace(dim, minimum=max(dim.minimum, 1)) for dim in self.dims)
        return replace(self, dims=dims)


def counted_sizes(
    program: ExportedProgram, signature: Signature, symbol_names: Mapping[str, str]
) -> Counted:
    """Find the sizes of a program that its data decides.

    Args:
        program: functional.
        signature: whose names are taken.
        symbol_names: torch's symbol -> the dimension's name, of the inputs' sizes.
    """
    shapes = {str(s) for node in program.graph.nodes for s in shape_symbols(node)}
    taken = {dim.name for dim in signature.dims} | {s.name for s in signature.inputs}
    ranges = {str(s): r for s, r in program.range_constraints.items()}
    names: dict[str, str] = {}
    dims = []
    for node in program.graph.nodes:
        for symbol in map(str, node.meta.get("unbacked_bindings") or {}):
            if symbol not in shapes or symbol in names:
                continue
            names[symbol] = name = _fresh(node, taken)
            taken.add(name)
            dims.append(_dim(name, node, ranges.get(symbol)))
    if not dims:
        return Counted()
    equal = _equalities(program, {**symbol_names, **names}, set(names.values()))
    return Counted(tuple(dims), names, tuple(equal))


def _dim(name: str, node: Node, found: Any) -> Dim:
    """Return a dimension with torch's range of it."""
    low = int(found.lower) if found and found.lower > 0 else 0
    high = found.upper if found else None
    if node.target is aten.masked_select.default:  # torch forgets that they broadcast
        shapes = [given.meta["val"].shape for given in node.all_input_nodes]
        fixed = all(isinstance(size, int) for shape in shapes for size in shape)
        whole = math.prod(np.broadcast_shapes(*shapes)) if fixed else None
        high = None if whole is None else sympy.Integer(whole)
    return Dim(name, low, int(high) if isinstance(high, sympy.Integer) else None)


def shape_symbols(node: Node) -> Iterator[sympy.Symbol]:
    """Yield torch's symbols of unknown sizes in the shapes of a node's tensors, in order."""
    for value in pytree.tree_leaves(node.meta.get("val")):
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            yield from sorted(free_unbacked_symbols(size), key=str)


def _fresh(node: Node, taken: set[str]) -> str:
    op = called_op(node)
    packet = getattr(op, "_overloadpacket", op)
    base = str(packet).split(".")[-1].strip("_")
    names = (f"{base}_size{n or ''}" for n in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _equalities(
    program: ExportedProgram, names: Mapping[str, str], counted: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield what torch's assertions say to be equal, where it is about counted sizes."""
    for node in program.graph.nodes:
        if node.target is not aten._assert_scalar.default:
            continue
        claim = node.args[0]
        if not isinstance(claim, Node) or getattr(claim.target, "__name__", "") != "eq":
            continue
        sides = [_expression(side, names) for side in claim.args]
        if None not in sides and counted & {n for s in sides for n in names_in(str(s))}:
            yield str(sides[0]), str(sides[1])


def _expression(value: Any, names: Mapping[str, str]) -> str | None:
    """Return a size computed in the graph in dimension names; None where it cannot be said."""
    if isinstance(value, int):
        return str(value)
    size = value.meta.get("val") if isinstance(value, Node) else None
    if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
        return names.get(str(size.node.expr))
    form = _OPERATORS.get(getattr(getattr(value, "target", None), "__name__", ""))
    if form is None:
        return None
    sides = [_expression(side, names) for side in value.args]
    return None if None in sides else form.format(*sides)


def jax_constraints(counted: Counted, dims: Sequence[Dim]) -> list[str]:
    """Return the equalities as JAX takes them: one term on the left.

    Those that JAX cannot take are checked at each call only.
    """
    names = [dim.name for dim in dims]
    free = dict(zip(names, export.symbolic_shape(", ".join(names)), strict=True))
    found: list[str] = []
    for sides in counted.equal:
        a, b = (evaluate(side, free, DIM_FUNCTIONS) for side in sides)
        for claim in _claims(a, b, free):
            try:
                export.symbolic_shape(", ".join(names), constraints=[*found, claim])
            except (ValueError, NotImplementedError):
                continue
            found.append(claim)
            break
    return found


def _claims(a: Any, b: Any, free: Mapping[str, Any]) -> Iterator[str]:
    """Yield an equality as it is, and solved for each of its dimensions."""
    yield from (f"{a} == {b}", f"{b} == {a}")
    for name, dim in free.items():
        for rest in (dim - (a - b), dim + (a - b)):
            if name not in names_in(str(spelled(rest))):
                yield f"{name} == {rest}"
