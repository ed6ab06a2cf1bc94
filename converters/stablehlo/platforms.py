"""Rules for one platform beside the general one: both traced, one kept per program.

A platform's rule may make a kernel that only that platform has (a Pallas call is a custom call
of Mosaic on TPU). The portable program keeps the general rule, so that every platform runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.context import current, lowering
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.inline import Atom, inlined
from tpu_export.converters.stablehlo.registry import Platform

Call: TypeAlias = Callable[..., Any]
# No platform of JAX has such a name: JAX itself always takes the general rule.
_MARK = "tpu_export."


def by_platform(
    general: Call, variants: Mapping[Platform, Call], args: Any, kwargs: Any
) -> Any:
    """Trace every rule on the same operands; `resolved` chooses among them later.

    Raises:
        UnsupportedOptionError: a rule draws random numbers, whose key cannot leave a branch.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array)]
    operands = [leaves[i] for i in places]

    def branch(rule: Call) -> Call:
        def call(*arrays: Any) -> Any:
            own = list(leaves)
            for i, array in zip(places, arrays, strict=True):
                own[i] = array
            args, kwargs = pytree.tree_unflatten(own, spec)
            return jax.tree.map(jnp.asarray, _tuples(rule(*args, **kwargs)))

        _refuse_draws(call, operands)
        return call

    own = {name: branch(rule) for name, rule in variants.items()}
    return choice_of_platform(branch(general), own, operands)


def choice_of_platform(
    general: Call, variants: Mapping[Platform, Call], operands: Sequence[jax.Array]
) -> Any:
    """Call functions of arrays that compute the same; `resolved` keeps one of them."""
    marked = {_MARK + name: own for name, own in variants.items()}
    return lax.platform_dependent(*operands, default=general, **marked)


def special_platforms(closed: ClosedJaxpr) -> frozenset[str]:
    """Return the platforms that a program has rules for anywhere."""
    own = (_special(eqn.params.get("branches_platforms")) for eqn in closed.jaxpr.eqns)
    nested = (
        special_platforms(inner) for eqn in closed.jaxpr.eqns for inner in _inner(eqn)
    )
    return frozenset().union(*own, *nested)


def resolved(closed: ClosedJaxpr, platform: str) -> ClosedJaxpr:
    """Return the program for a platform; "" keeps the general rules only."""
    if not special_platforms(closed):
        return closed

    def body(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[Atom]] | None:
        if not _marked(eqn):
            return None
        names = eqn.params["branches_platforms"]
        wanted = next(
            (i for i, own in enumerate(names) if own and _MARK + platform in own),
            len(names) - 1,
        )
        return eqn.params["branches"][wanted].jaxpr, eqn.invars[1:]

    equations, results = inlined(closed.jaxpr, body)
    equations = [
        eqn.replace(params=_mapped(eqn, partial(resolved, platform=platform)))
        for eqn in equations
        if not _special(eqn.params.get("platforms"))
    ]
    jaxpr = closed.jaxpr.replace(eqns=equations, outvars=results)
    return ClosedJaxpr(jaxpr, closed.consts)


def interpreted(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the program with its Pallas kernels run by Pallas's interpreter, on any device."""
    equations = [
        eqn.replace(
            params={**eqn.params, "interpret": True}
            if eqn.primitive.name == "pallas_call"
            else _mapped(eqn, interpreted)
        )
        for eqn in closed.jaxpr.eqns
    ]
    return ClosedJaxpr(closed.jaxpr.replace(eqns=equations), closed.consts)


def _tuples(results: Any) -> Any:
    return tuple(results) if isinstance(results, list) else results


def _refuse_draws(call: Call, operands: Sequence[Any]) -> None:
    trial = replace(current(), trial=True, drew=False)
    with lowering(trial):
        jax.eval_shape(call, *operands)
    if trial.drew:
        raise UnsupportedOptionError(
            "an op with a rule for one platform draws random numbers",
            hint="give the op one general rule (tpu_export.lowers without platform=)",
        )


def _marked(eqn: JaxprEqn) -> bool:
    return bool(_special(eqn.params.get("branches_platforms")))


def _special(branches: Sequence[Sequence[str] | None] | None) -> set[str]:
    names = (name for names in branches or () if names for name in names)
    return {n.removeprefix(_MARK) for n in names if n.startswith(_MARK)}


def _inner(eqn: JaxprEqn) -> list[ClosedJaxpr]:
    values = (x for value in eqn.params.values() for x in _several(value))
    return [x for x in values if isinstance(x, ClosedJaxpr)]


def _mapped(
    eqn: JaxprEqn, change: Callable[[ClosedJaxpr], ClosedJaxpr]
) -> dict[str, Any]:
    """Return an equation's parameters with the programs in them changed."""
    return {
        name: change(value)
        if isinstance(value, ClosedJaxpr)
        else tuple(map(change, value))
        if isinstance(value, tuple) and any(isinstance(x, ClosedJaxpr) for x in value)
        else value
        for name, value in eqn.params.items()
    }


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple) else (value,)
