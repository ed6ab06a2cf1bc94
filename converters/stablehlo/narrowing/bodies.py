"""Programs within an equation: branches and bodies of loops.

What they take and give keeps its dtype. What a loop carries can be anything, so that a proof
holds for every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from jax.extend.core import ClosedJaxpr, JaxprEqn

from tpu_export.converters.stablehlo.narrowing.interval import Interval, hull
from tpu_export.converters.stablehlo.narrowing.ranges import limits_of

Ranges: TypeAlias = Sequence[Interval | None]
Inner: TypeAlias = Callable[
    [ClosedJaxpr, Ranges, JaxprEqn], tuple[ClosedJaxpr, list[Interval | None]]
]


BODIES = frozenset({"cond", "while", "scan"})


def with_bodies(
    eqn: JaxprEqn, operands: Ranges, inner: Inner
) -> tuple[JaxprEqn, list[Interval | None]] | None:
    """Return an equation with its programs narrowed, and its results' ranges.

    None where it is no control flow.
    """
    match eqn.primitive.name:
        case "cond":
            params, results = _branches(eqn, operands, inner)
        case "while":
            params, results = _loop(eqn, operands, inner)
        case "scan":
            params, results = _scan(eqn, operands, inner)
        case _:
            return None
    return eqn.replace(params={**eqn.params, **params}), results


def _branches(
    eqn: JaxprEqn, operands: Ranges, inner: Inner
) -> tuple[dict[str, Any], list[Interval | None]]:
    made = [inner(body, operands[1:], eqn) for body in eqn.params["branches"]]
    results = [
        None if None in several else hull(x for x in several if x is not None)
        for several in zip(*(ranges for _, ranges in made), strict=True)
    ]
    return {"branches": tuple(body for body, _ in made)}, results


def _loop(
    eqn: JaxprEqn, operands: Ranges, inner: Inner
) -> tuple[dict[str, Any], list[Interval | None]]:
    n = eqn.params["cond_nconsts"]
    m = n + eqn.params["body_nconsts"]
    carried = [None] * (len(operands) - m)
    test, _ = inner(eqn.params["cond_jaxpr"], [*operands[:n], *carried], eqn)
    body, _ = inner(eqn.params["body_jaxpr"], [*operands[n:m], *carried], eqn)
    params = {"cond_jaxpr": test, "body_jaxpr": body}
    return params, [limits_of(v) for v in eqn.outvars]


def _scan(
    eqn: JaxprEqn, operands: Ranges, inner: Inner
) -> tuple[dict[str, Any], list[Interval | None]]:
    n, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    given = [*operands[:n], *[None] * carry, *operands[n + carry :]]
    body, results = inner(eqn.params["jaxpr"], given, eqn)
    made = [limits_of(v) for v in eqn.outvars[:carry]] + results[carry:]
    return {"jaxpr": body}, made
