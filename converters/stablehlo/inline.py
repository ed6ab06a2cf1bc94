"""Equations of inner jaxprs in the place of the equation that calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

Atom: TypeAlias = Any
# The jaxpr that an equation calls and its operands; None where the equation stays.
Body: TypeAlias = Callable[[JaxprEqn], tuple[Jaxpr, Sequence[Atom]] | None]
_CALLS = frozenset({"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"})


def inlined(jaxpr: Jaxpr, body: Body) -> tuple[list[JaxprEqn], list[Atom]]:
    """Return the equations and results of a jaxpr with what it calls in place.

    Variables are made anew: JAX shares inner jaxprs between calls. Inner equations know their
    names below the call only, so they get the call's before them.
    """
    equations: list[JaxprEqn] = []

    def inline(
        eqns: Sequence[JaxprEqn], names: dict[Var, Atom], outer: Sequence[JaxprEqn]
    ) -> None:
        for eqn in eqns:
            operands = [lookup(v, names) for v in eqn.invars]
            found = body(eqn.replace(invars=operands))
            if found is not None:
                inner, given = found
                local = dict(zip(inner.invars, given, strict=True))
                inline(inner.eqns, local, (*outer, eqn))
                outs = [lookup(v, local) for v in inner.outvars]
                names.update(zip(eqn.outvars, outs, strict=True))
            else:
                fresh = [Var(v.aval) for v in eqn.outvars]
                names.update(zip(eqn.outvars, fresh, strict=True))
                info = _source(eqn, outer)
                equations.append(
                    eqn.replace(invars=operands, outvars=fresh, source_info=info)
                )

    names: dict[Var, Atom] = {}
    inline(jaxpr.eqns, names, ())
    return equations, [lookup(v, names) for v in jaxpr.outvars]


def called(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[Atom]] | None:
    """Return what a plain call calls, and its operands."""
    inner: Any = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    is_call = (
        eqn.primitive.name in _CALLS
        and isinstance(inner, ClosedJaxpr)
        and not eqn.effects
        and not inner.consts
    )
    return (inner.jaxpr, eqn.invars) if is_call else None


def alive(equations: Sequence[JaxprEqn], results: Sequence[Atom]) -> list[JaxprEqn]:
    """Return the equations that something reads."""
    read = {v for v in results if not isinstance(v, Literal)}
    kept = []
    for eqn in reversed(equations):
        if eqn.effects or read.intersection(eqn.outvars):
            kept.append(eqn)
            read.update(v for v in eqn.invars if not isinstance(v, Literal))
    return kept[::-1]


def lookup(v: Atom, names: Mapping[Var, Atom]) -> Atom:
    """Return what a variable is called now; literals stay."""
    return v if isinstance(v, Literal) else names.get(v, v)


def _source(eqn: JaxprEqn, outer: Sequence[JaxprEqn]) -> Any:
    info = eqn.source_info
    for call in reversed(outer):
        info = info.replace(name_stack=call.source_info.name_stack + info.name_stack)
    return info
