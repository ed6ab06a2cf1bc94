"""What counts sizes, taken out of a traced signature as functions that run before main."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jax.export import is_symbolic_dim
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var
from jax.tree_util import tree_leaves

from tpu_export.converters.stablehlo.inline import Atom, alive, called, inlined
from tpu_export.converters.stablehlo.shapes import spelled
from tpu_export.runtime.expressions import names_in
from tpu_export.runtime.signature import Dim, FunctionSpec, Slot

Function = tuple[ClosedJaxpr, FunctionSpec]


def split_counts(
    closed: ClosedJaxpr, arguments: Sequence[Slot], counted: Sequence[Dim]
) -> tuple[ClosedJaxpr, list[Function]]:
    """Return a function without its last results, the counts, and functions for these.

    A function gives every count for which the sizes of the functions before it suffice.

    Args:
        closed: gives one number of each of `counted` after its other results.
        arguments: what it takes, in order.
        counted: the dimensions that it counts.
    """
    if not counted:
        return closed, []
    jaxpr = closed.jaxpr
    outvars = list(jaxpr.outvars)
    main = _with_results(closed, outvars[: -len(counted)], jaxpr.invars)
    waiting = dict(
        zip([d.name for d in counted], outvars[-len(counted) :], strict=True)
    )
    functions = []
    while waiting:
        ready = {
            n: v for n, v in waiting.items() if _needs(closed, v, waiting) == set()
        }
        assert ready, f"sizes that need each other: {sorted(waiting)}"
        functions.append(_function(closed, ready, arguments))
        waiting = {n: v for n, v in waiting.items() if n not in ready}
    return main, functions


def _needs(closed: ClosedJaxpr, result: Atom, names: Iterable[str]) -> set[str]:
    """Return which of the dimensions occur in what a result is computed from."""
    equations, _ = _alive(closed, [result])
    return {n for eqn in equations for n in _dimensions(eqn)} & set(names)


def _function(
    closed: ClosedJaxpr, results: Mapping[str, Atom], arguments: Sequence[Slot]
) -> Function:
    equations, atoms = _alive(closed, list(results.values()))
    read = {v for eqn in equations for v in eqn.invars if not isinstance(v, Literal)}
    read |= {v for v in atoms if not isinstance(v, Literal)}
    mentioned = {n for eqn in equations for n in _dimensions(eqn)}
    pairs = [
        (v, slot)
        for v, slot in zip(closed.jaxpr.invars, arguments, strict=True)
        if v in read or _gives(slot, mentioned)
    ]
    invars = [v for v, _ in pairs]
    spec = FunctionSpec(
        tuple(slot for _, slot in pairs),
        tuple(Slot("count", name, (), "int64") for name in results),
    )
    return _with_results(closed, list(results.values()), invars), spec


def _gives(slot: Slot, mentioned: set[str]) -> bool:
    """Whether an argument's shape says a dimension that the function computes with."""
    sizes = {n for size in slot.shape if isinstance(size, str) for n in names_in(size)}
    return bool(sizes & mentioned)


def _with_results(
    closed: ClosedJaxpr, results: Sequence[Atom], invars: Sequence[Var]
) -> ClosedJaxpr:
    equations, atoms = _alive(closed, results)
    jaxpr = Jaxpr(
        closed.jaxpr.constvars,
        list(invars),
        atoms,
        equations,
        debug_info=closed.jaxpr.debug_info.with_unknown_names(),
    )
    return ClosedJaxpr(jaxpr, closed.consts)


def _alive(
    closed: ClosedJaxpr, results: Sequence[Atom]
) -> tuple[list[Any], list[Atom]]:
    """Return the equations that results need, with calls in line."""
    jaxpr = closed.jaxpr.replace(
        outvars=list(results),
        debug_info=closed.jaxpr.debug_info.with_unknown_names(),
    )
    equations, atoms = inlined(jaxpr, called)
    return alive(equations, atoms), atoms


@contextmanager
def own_dimensions(closed: ClosedJaxpr) -> Iterator[None]:
    """Hide from JAX what its scope says of dimensions that a function does not have."""
    sizes = [s for v in closed.jaxpr.invars for s in v.aval.shape if is_symbolic_dim(s)]
    if not sizes:
        yield
        return
    scope = sizes[0].scope
    own = {n for size in sizes for n in names_in(str(spelled(size)))}
    every = scope._explicit_constraints
    scope._explicit_constraints = [
        c for c in every if names_in(str(spelled(c.diff))) <= own
    ]
    try:
        yield
    finally:
        scope._explicit_constraints = every


def _dimensions(eqn: Any) -> Iterator[str]:
    """Yield the names of the dynamic dimensions in an equation's shapes and parameters."""
    inner = [
        getattr(x, "jaxpr", x)
        for x in tree_leaves(
            eqn.params, is_leaf=lambda x: isinstance(x, Jaxpr | ClosedJaxpr)
        )
        if isinstance(x, Jaxpr | ClosedJaxpr)
    ]
    for jaxpr in inner:
        for part in jaxpr.eqns:
            yield from _dimensions(part)
    shapes = [
        s for v in (*eqn.invars, *eqn.outvars) for s in getattr(v.aval, "shape", ())
    ]
    for size in tree_leaves((shapes, eqn.params)):
        if is_symbolic_dim(size):
            yield from names_in(str(spelled(size)))
