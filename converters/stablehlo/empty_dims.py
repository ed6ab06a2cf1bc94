"""Dimensions that may be 0, which JAX's symbolic scopes have no words for.

JAX takes each dimension variable for at least 1, and so max(n - 1, 0) for n - 1. What a scope
knows at first is made here without that, from its explicit constraints alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from jax import export
from jax._src.export.shape_poly_decision import _DecisionByElimination


def variables(
    names: Sequence[str],
    bounds: Sequence[str],
    claims: Sequence[str],
    empty: AbstractSet[str],
) -> dict[str, Any]:
    """Return dimension variables of one scope.

    Args:
        names: of the dimensions.
        bounds: of each alone.
        claims: more that is true of them, which JAX must read as what it knows by then.
        empty: names of those that count as 0 or more; others are at least 1.
    """
    if not names:
        return {}
    found: dict[str, Any] = dict(
        zip(
            names,
            export.symbolic_shape(", ".join(names), constraints=bounds),
            strict=True,
        )
    )
    scope = found[names[0]].scope
    zeros = [found[name] for name in names if name in empty]
    for claim in claims:
        _may_be_zero(scope, zeros)
        scope._parse_and_process_explicit_constraint(claim)
    _may_be_zero(scope, zeros)
    made = export.symbolic_shape(", ".join(names), scope=scope)
    return dict(zip(names, made, strict=True))  # two that are equal are one from here


def _may_be_zero(scope: Any, zeros: Sequence[Any]) -> None:
    state = _DecisionByElimination(scope)
    for variable in zeros:
        term, _ = variable._leading_term
        state._processed_for_internal_constraints.add(term)
    scope._decision_initial_state = state.initialize()
    scope._bounds_cache.clear()
