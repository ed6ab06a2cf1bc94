"""Split a traced function into prepare(weights), run once, and main, run at each call.

Work that depends only on weights moves to prepare, as long as that does not cost memory:
  bytes(what prepare gives and main keeps) <= (1 + slack) * bytes(weights),
each hoisted value paid by weights that main then no longer reads, or from the common slack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.tree_util import tree_leaves

from tpu_export.converters.stablehlo.inline import Atom, alive, called, inlined, lookup
from tpu_export.converters.stablehlo.operands import KEPT

# A value that differs from its operand in rank only is made anew for free at each call;
# stored, it would have a padded layout of its own on TPU (5-8 % of the cycles of a Llama).
_FREE = frozenset({"broadcast_in_dim", "reshape", "squeeze", "expand_dims"})
SLACK = 1 / 16


@dataclass(frozen=True)
class Split:
    """A function in two: main(*boundary, *inputs), boundary from prepare or untouched.

    Attributes:
        prepare: weights -> computed boundary values; None when nothing is hoisted.
        main: boundary values, then the other inputs.
        boundary: per leading argument of main: the index of an untouched weight, or None
            for the next result of prepare.
        weights: indices of the weights that prepare takes.
    """

    prepare: ClosedJaxpr | None
    main: ClosedJaxpr
    boundary: tuple[int | None, ...]
    weights: tuple[int, ...]


def split(closed: ClosedJaxpr, n_weights: int, slack: float = SLACK) -> Split:
    """Split a jaxpr whose first `n_weights` inputs are weights."""
    jaxpr = closed.jaxpr
    flat = _flatten(jaxpr)
    weights = jaxpr.invars[:n_weights]
    known = _Known.of(flat, weights, jaxpr.constvars)
    hoisted = _affordable(known, weights, slack)
    main = [e for n, e in enumerate(known.equations) if n not in hoisted]
    made = {v for n in hoisted for v in known.equations[n].outvars} | set(weights)
    read = [v for e in main for v in e.invars] + known.results
    distinct: list[Any] = list(dict.fromkeys(filter(_is_var, read)))
    boundary = [v for v in distinct if v in made]
    index = {v: i for i, v in enumerate(weights)}
    computed = [v for v in boundary if v not in index]
    prepare, used = _prepare(known, computed, weights, closed)
    new_main = Jaxpr(
        jaxpr.constvars,
        [*boundary, *jaxpr.invars[n_weights:]],
        known.results,
        main,
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    return Split(
        prepare,
        ClosedJaxpr(new_main, closed.consts),
        tuple(index.get(v) for v in boundary),
        tuple(index[v] for v in used),
    )


@dataclass
class _Flat:
    equations: list[JaxprEqn]
    results: list[Atom]


def _flatten(jaxpr: Jaxpr) -> _Flat:
    equations, results = inlined(jaxpr, called)
    return _Flat(alive(equations, results), results)


def _is_var(v: Atom) -> bool:
    return not isinstance(v, Literal)


@dataclass
class _Known:
    """Equations with weight-only ones found, and equal ones among them merged."""

    equations: list[JaxprEqn] = field(default_factory=list)
    results: list[Atom] = field(default_factory=list)
    candidates: set[int] = field(default_factory=set)
    leaves: dict[Var, frozenset[Var]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, flat: _Flat, weights: Sequence[Var], constants: Sequence[Var]
    ) -> _Known:
        self = cls()
        self.leaves = {v: frozenset({v}) for v in weights}
        self.leaves |= dict.fromkeys(constants, frozenset())
        names: dict[Var, Atom] = {}
        seen: dict[object, Sequence[Var]] = {}
        for eqn in flat.equations:
            renamed = eqn.replace(invars=[lookup(v, names) for v in eqn.invars])
            operands = [v for v in renamed.invars if _is_var(v)]
            free = not eqn.effects and not _has_dimension(eqn) and not _kept(eqn)
            if free and all(v in self.leaves for v in operands):
                key = _key(renamed)
                if key in seen:
                    names.update(zip(eqn.outvars, seen[key], strict=True))
                    continue
                seen[key] = eqn.outvars
                leaves = frozenset().union(*(self.leaves[v] for v in operands))
                self.leaves |= dict.fromkeys(eqn.outvars, leaves)
                if leaves:  # iota and other constants are cheaper in main
                    self.candidates.add(len(self.equations))
            self.equations.append(renamed)
        self.results = [lookup(v, names) for v in flat.results]
        return self


def _kept(eqn: JaxprEqn) -> bool:
    return str(eqn.params.get("name")).startswith(KEPT)


def _has_dimension(eqn: JaxprEqn) -> bool:
    """Whether an equation needs a dynamic dimension, which prepare does not have."""
    shapes = [size for v in eqn.outvars for size in getattr(v.aval, "shape", ())]
    return any(map(is_symbolic_dim, tree_leaves((shapes, eqn.params))))


def _key(eqn: JaxprEqn) -> object:
    operands = tuple(
        v if isinstance(v, Var) else (str(v.val), str(v.aval)) for v in eqn.invars
    )
    return (eqn.primitive.name, operands, str(eqn.params))


def _affordable(known: _Known, weights: Sequence[Var], slack: float) -> set[int]:
    """Return the equations to hoist: drop what cannot be paid, until all can."""
    rank = {w: i for i, w in enumerate(weights)}
    hoisted = set(known.candidates)
    total = sum(_bytes(w) for w in weights)
    while True:
        needed = {v for v in known.results if _is_var(v)}
        for n, eqn in enumerate(known.equations):
            if n not in hoisted:
                needed.update(filter(_is_var, eqn.invars))
        credit = {w: _bytes(w) for w in weights if w not in needed}
        pool = slack * total
        dropped = False
        for n in sorted(hoisted, reverse=True):
            eqn = known.equations[n]
            kept = [v for v in eqn.outvars if v in needed]
            cost = sum(_bytes(v) for v in kept)
            for leaf in sorted(known.leaves[eqn.outvars[0]], key=rank.__getitem__):
                paid = min(cost, credit.get(leaf, 0))
                cost -= paid
                if paid:
                    credit[leaf] -= paid
            if cost > pool or (kept and eqn.primitive.name in _FREE):
                hoisted.discard(n)
                needed.update(filter(_is_var, eqn.invars))
                dropped = True
            else:
                pool -= cost
        if not dropped:
            return hoisted


def _bytes(v: Var) -> float:
    aval: Any = v.aval
    if not all(isinstance(size, int) for size in aval.shape):
        return math.inf
    return float(math.prod(aval.shape) * aval.dtype.itemsize)


def _prepare(
    known: _Known, computed: list[Var], weights: Sequence[Var], closed: ClosedJaxpr
) -> tuple[ClosedJaxpr | None, list[Var]]:
    """Return the program for the computed values, and the weights it takes."""
    if not computed:
        return None, []
    wanted: set[Var] = set(computed)
    body: list[JaxprEqn] = []
    for eqn in reversed(known.equations):
        if wanted.intersection(eqn.outvars):
            body.append(eqn)
            wanted.update(v for v in eqn.invars if isinstance(v, Var))
    used = [w for w in weights if w in wanted]
    jaxpr = Jaxpr(
        closed.jaxpr.constvars,
        used,
        computed,
        body[::-1],
        debug_info=closed.jaxpr.debug_info.with_unknown_names(),
    )
    return ClosedJaxpr(jaxpr, closed.consts), used
