"""Equations on 64-bit integers, in 32 bits where the values provably fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var

from tpu_export.converters.stablehlo.inline import Atom, called, inlined, lookup
from tpu_export.converters.stablehlo.narrowing.bodies import BODIES, with_bodies
from tpu_export.converters.stablehlo.narrowing.groups import MOVES, Group, groups
from tpu_export.converters.stablehlo.narrowing.interval import INT32, Interval, hull_of
from tpu_export.converters.stablehlo.narrowing.ranges import (
    dtype_of,
    is_wide,
    limits_of,
    results_of,
)
from tpu_export.converters.stablehlo.narrowing.report import (
    IntegerTensor,
    Rows,
    merged,
    place_of,
)
from tpu_export.converters.stablehlo.narrowing.sizes import Sizes
from tpu_export.runtime.signature import Dim

_NARROW = np.dtype(np.int32)


@dataclass(frozen=True)
class Argument:
    """An argument of a program.

    Attributes:
        name: such as "input ids".
        values: every value that it can have, where that is known.
    """

    name: str
    values: Interval | None = None


def narrow(
    closed: ClosedJaxpr, arguments: Sequence[Argument], dims: Sequence[Dim]
) -> tuple[ClosedJaxpr, tuple[IntegerTensor, ...]]:
    """Return the same function of the same arguments, and what became of its integers.

    Given:  c:i64[9] = iota; d:i64[9] = add c 2; e:bool[9] = lt d x     (x in 0 … 99)
    Result: c:i32[9] = iota; d:i32[9] = add c 2; y:i32[9] = convert x; e:bool[9] = lt d y
    """
    rows = Rows(Sizes(dims))
    with jax.enable_x64(True):
        known = [argument.values for argument in arguments]
        result, _ = _narrowed(closed, known, [a.name for a in arguments], rows)
    return result, merged(rows.found)


def _narrowed(
    closed: ClosedJaxpr,
    known: Sequence[Interval | None],
    names: Sequence[str],
    rows: Rows,
) -> tuple[ClosedJaxpr, list[Interval | None]]:
    """Narrow one program; return it and the ranges of its results.

    Args:
        closed: the program.
        known: the ranges of its arguments.
        names: of its arguments, for the report.
        rows: where the report goes.
    """
    equations, outs = inlined(closed.jaxpr, called)
    program = _Program(rows)
    program.take(closed.jaxpr.invars, known, names)
    for v, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        if limits_of(v) is not None and np.size(value):
            held = np.asarray(value)
            program.ranges[v] = hull_of((int(held.min()), int(held.max())))
    for eqn in equations:
        program.step(eqn)
    results = [program.in_own(v) for v in outs]
    ranges = [program.range(v) for v in outs]
    read = {id(v) for eqn in equations for v in eqn.invars} | {id(v) for v in outs}
    named = dict(zip(closed.jaxpr.invars, names, strict=True))
    used = {v: name for v, name in named.items() if name and id(v) in read}
    rows.arguments(used, program.ranges, program.narrow)
    jaxpr = closed.jaxpr.replace(eqns=program.equations, outvars=results)
    return ClosedJaxpr(jaxpr, closed.consts), ranges


@dataclass
class _Program:
    """The equations so far.

    Attributes:
        ranges: of each whole number, where they are narrower than its dtype.
        narrow: the 32-bit form of an int64 variable.
        gone: int64 variables of which there is only the 32-bit form.
        own: other names of variables.
    """

    rows: Rows
    equations: list[JaxprEqn] = field(default_factory=list)
    ranges: dict[Var, Interval] = field(default_factory=dict)
    narrow: dict[Var, Atom] = field(default_factory=dict)
    gone: dict[Var, JaxprEqn] = field(default_factory=dict)
    own: dict[Var, Atom] = field(default_factory=dict)

    def take(
        self,
        arguments: Sequence[Var],
        known: Sequence[Interval | None],
        names: Sequence[str],
    ) -> None:
        """Begin with the arguments."""
        for v, values, name in zip(arguments, known, names, strict=True):
            limits = limits_of(v)
            if limits is not None and values is not None and values.within(limits):
                self.ranges[v] = values
            elif is_wide(v):
                self.rows.why[v] = (
                    f"{name or 'what a loop or branch takes'} can be any number"
                )

    def range(self, v: Atom) -> Interval | None:
        """Return the values of an operand; None where it is no whole number."""
        limits = limits_of(v)
        if limits is None:
            return None
        if isinstance(v, Literal):
            return Interval(int(v.val), int(v.val))
        return self.ranges.get(v, limits)

    def in_own(self, v: Atom) -> Atom:
        """Return a variable in the dtype that it had."""
        if not isinstance(v, Literal) and v in self.gone:
            source = self.gone.pop(v)
            self.equations.append(_convert(self.narrow[v], v, source))
        return lookup(v, self.own)

    def in_32(self, v: Atom, user: JaxprEqn) -> Atom:
        """Return a variable that fits in 32 bits."""
        if isinstance(v, Literal):
            return _literal(v, v)
        if v not in self.narrow:
            self.narrow[v] = _narrow_var(v)
            self.equations.append(_convert(self.in_own(v), self.narrow[v], user))
        return self.narrow[v]

    def step(self, eqn: JaxprEqn) -> None:
        """Add an equation, narrowed where it can be."""
        wide = any(map(is_wide, (*eqn.invars, *eqn.outvars)))
        if not wide and eqn.primitive.name not in BODIES and not _makes_integers(eqn):
            self._add(eqn, [self.in_own(v) for v in eqn.invars])
            return
        operands = [self.range(v) for v in eqn.invars]
        found = with_bodies(eqn, operands, self._inner)
        if found is None:
            results = results_of(eqn, operands, self.rows.sizes)
        else:
            eqn, results = found
        for v, values in zip(eqn.outvars, results, strict=True):
            if values is not None:
                self.ranges[v] = values
        if not wide:
            self._add(eqn, [self.in_own(v) for v in eqn.invars])
        elif not self._same_value(eqn):
            self._group(eqn)
        self.rows.equation(eqn, self.ranges, self.narrow)

    def _inner(
        self, closed: ClosedJaxpr, known: Sequence[Interval | None], eqn: JaxprEqn
    ) -> tuple[ClosedJaxpr, list[Interval | None]]:
        with self.rows.inside(place_of(eqn)):
            return _narrowed(closed, known, [""] * len(known), self.rows)

    def _add(self, eqn: JaxprEqn, operands: Sequence[Atom]) -> None:
        if any(a is not b for a, b in zip(operands, eqn.invars, strict=True)):
            eqn = eqn.replace(invars=[*operands])
        self.equations.append(eqn)

    def _same_value(self, eqn: JaxprEqn) -> bool:
        """Take a conversion between 32 and 64 bits as another name of its operand."""
        if eqn.primitive.name != "convert_element_type":
            return False
        (v,), (out,) = eqn.invars, eqn.outvars
        if not self._in_32(v):
            return False
        if isinstance(v, Literal):
            if not is_wide(out):
                return False
            self.narrow[out], self.gone[out] = _literal(v, out), eqn
        elif is_wide(v) and dtype_of(out) == _NARROW:
            self.own[out] = self.in_32(v, eqn)
        elif dtype_of(v) == _NARROW and is_wide(out):
            self.narrow[out], self.gone[out] = self.in_own(v), eqn
        else:
            return False
        return True

    def _group(self, eqn: JaxprEqn) -> None:
        chosen = [g for g in groups(eqn) if self._fits(eqn, g)]
        narrow = {i for g in chosen for i in g.operands if is_wide(eqn.invars[i])}
        operands = [
            self.in_32(v, eqn) if i in narrow else self.in_own(v)
            for i, v in enumerate(eqn.invars)
        ]
        params, outs = dict(eqn.params), list(eqn.outvars)
        for group in chosen:
            for i in filter(lambda i: is_wide(eqn.outvars[i]), group.results):
                outs[i] = self.narrow[eqn.outvars[i]] = _narrow_var(eqn.outvars[i])
                self.gone[eqn.outvars[i]] = eqn
                if group.parameter is not None:
                    params[group.parameter] = _NARROW
        self.equations.append(eqn.replace(invars=operands, outvars=outs, params=params))

    def _fits(self, eqn: JaxprEqn, group: Group) -> bool:
        """Whether 32 bits hold all of a group, and there is something to gain."""
        given = [v for i in group.operands if is_wide(v := eqn.invars[i])]
        made = [v for i in group.results if is_wide(v := eqn.outvars[i])]
        if not all(self._in_32(v) for v in (*given, *made)):
            return False
        name = eqn.primitive.name
        follows = name in MOVES if made else name == "convert_element_type"
        return bool(given or made) and (
            not follows
            or all(isinstance(v, Literal) or v in self.narrow for v in given)
        )

    def _in_32(self, v: Atom) -> bool:
        values = self.range(v)
        return values is not None and values.within(INT32)


def _makes_integers(eqn: JaxprEqn) -> bool:
    return any(limits_of(v) is not None for v in eqn.outvars)


def _narrow_var(v: Var) -> Var:
    aval: Any = v.aval
    return Var(aval.update(dtype=_NARROW))


def _literal(v: Literal, like: Atom) -> Literal:
    return Literal(np.int32(v.val), like.aval.update(dtype=_NARROW))


@cache
def _conversion() -> JaxprEqn:
    scalar = jax.ShapeDtypeStruct((), _NARROW)
    closed = jax.make_jaxpr(lambda x: lax.convert_element_type(x, jnp.int16))(scalar)
    conversion: JaxprEqn = closed.jaxpr.eqns[0]
    return conversion


def _convert(v: Atom, to: Var, near: JaxprEqn) -> JaxprEqn:
    """Return `to = convert v`, placed where `near` is."""
    template = _conversion()
    params = {**template.params, "new_dtype": dtype_of(to)}
    made: JaxprEqn = template.replace(
        invars=[v], outvars=[to], params=params, source_info=near.source_info
    )
    return made
