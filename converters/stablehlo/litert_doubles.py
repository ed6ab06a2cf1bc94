"""What float64 and complex numbers compute from nothing, as constants: LiteRT has neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from tpu_export.converters.stablehlo.inline import alive, called, inlined

_LACKING = ("float64", "complex64", "complex128")


def without_doubles(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the program with such constants computed; itself without any.

    Given:  iota -> to float64 -> power -> sine -> to float32 -> sum with an input
    Result: a constant -> sum with an input
    """
    equations, results = inlined(closed.jaxpr, called)
    fixed = _fixed(equations, closed.jaxpr.constvars)
    inside = {v for eqn in fixed if _lacks(eqn) for v in eqn.outvars}
    rest = [eqn for eqn in equations if not inside.intersection(eqn.outvars)]
    read = [v for eqn in rest for v in eqn.invars] + list(results)
    wanted = [v for v in dict.fromkeys(map(_variable, read)) if v in inside]
    if not wanted:
        return closed
    values = _computed(closed, fixed, wanted)
    jaxpr = closed.jaxpr.replace(
        constvars=[*closed.jaxpr.constvars, *wanted],
        eqns=alive(rest, results),
        outvars=results,
    )
    return ClosedJaxpr(jaxpr, [*closed.consts, *values])


def _variable(value: Any) -> Any:
    return None if isinstance(value, Literal) else value


def _fixed(equations: Sequence[JaxprEqn], constants: Sequence[Var]) -> list[JaxprEqn]:
    """Return the equations that depend on no argument and no size that is not known."""
    known = set(constants)
    found = []
    for eqn in equations:
        avals = _avals(eqn)
        sized = all(isinstance(d, int) for aval in avals for d in aval.shape)
        read = [v for v in eqn.invars if not isinstance(v, Literal)]
        if sized and not eqn.effects and known.issuperset(read):
            known.update(eqn.outvars)
            found.append(eqn)
    return found


def _lacks(eqn: JaxprEqn) -> bool:
    return any(str(aval.dtype) in _LACKING for aval in _avals(eqn))


def _avals(eqn: JaxprEqn) -> list[Any]:
    return [v.aval for v in (*eqn.invars, *eqn.outvars)]


def _computed(
    closed: ClosedJaxpr, equations: Sequence[JaxprEqn], wanted: Sequence[Var]
) -> list[Any]:
    jaxpr = closed.jaxpr.replace(
        invars=[], outvars=list(wanted), eqns=alive(equations, wanted)
    )
    with jax.enable_x64(True):
        return [
            np.asarray(x) for x in jaxpr_as_fun(ClosedJaxpr(jaxpr, closed.consts))()
        ]
