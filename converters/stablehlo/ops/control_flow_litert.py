"""Loops written out for LiteRT, which runs none.

A while loop has an end that is proven while lowering: what its condition says of the values that
are known (counters from a constant) is computed at each step; `False & anything` is false.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, Var

from tpu_export.converters.stablehlo.context import (
    LoweringContext,
    current,
    lowering,
)
from tpu_export.converters.stablehlo.inline import called, inlined
from tpu_export.converters.stablehlo.ops.indexing import concrete
from tpu_export.converters.stablehlo.ops.ranking import LiteRtUnsupportedError
from tpu_export.converters.stablehlo.registry import lowers

higher_order = torch.ops.higher_order
Graph: TypeAlias = Callable[..., Any]
Known: TypeAlias = Any  # a NumPy array, or None
MAX_STEPS = 256
MAX_OPS = 20_000


def _check_budget(loop: str, steps: int, size: int) -> None:
    """Refuse a loop of so many steps, each of `size` ops with what loops inside need.

    Raises:
        LiteRtUnsupportedError: all of them are more than LiteRT's converter should get.
    """
    if steps * size > MAX_OPS:
        raise LiteRtUnsupportedError(
            f"{loop} steps with {size} ops each has no form that LiteRT can "
            f"load: up to {MAX_OPS} ops are written out",
            hint="use fewer steps, or export for cloud-tpu",
        )


@lowers(higher_order.while_loop, target="litert")
def while_loop(
    cond_graph: Graph, body: Graph, carried: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    state, more = _arrays(carried), _arrays(extra)
    known: list[Known] = [concrete(x) for x in carried]
    test = _traced(lambda *a: _arrays(cond_graph(*a))[0].reshape(()), state, more)
    step = _traced(lambda *a: _arrays(body(*a)), state, more)
    alive: Array | None = None  # where the data decides
    for number in range(MAX_STEPS + 1):
        (goes_on,) = _known_results(test, known)
        if goes_on is not None and not goes_on:
            return state
        _check_budget(
            f"a while loop of at least {number + 1}", number + 1, _size(step.jaxpr)
        )
        new = _arrays(body(*state, *more))
        if goes_on is None or alive is not None:
            now = _arrays(cond_graph(*state, *more))[0].reshape(())
            alive = now if alive is None else alive & now
            held = alive
            new = tuple(jnp.where(held, a, b) for a, b in zip(new, state, strict=True))
        state = new
        # A counter goes on where the loop has ended: the bound holds all the same.
        known = _known_results(step, known)
    raise LiteRtUnsupportedError(
        f"a while loop that is not known to end within {MAX_STEPS} steps has no form that "
        "LiteRT can load",
        hint="bound it by a counter from a constant (i < 20), or export for cloud-tpu",
    )


@lowers(higher_order.scan, target="litert")
def scan(
    combine: Graph, init: Sequence[Any], xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    state, slices = _arrays(init), _arrays(xs)
    rows = []
    count = _steps("scan", slices)
    first = [x[0] for x in slices]
    _check_step("scan", count, lambda *a: combine(*a, *extra), (*state, *first))
    for i in range(count):
        found = _arrays(combine(*state, *(x[i] for x in slices), *extra))
        state, row = found[: len(state)], found[len(state) :]
        rows.append(row)
    return (*state, *(jnp.stack(ys) for ys in zip(*rows, strict=True)))


@lowers(higher_order.map_impl, target="litert")
def map_(
    function: Graph, xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    slices = _arrays(xs)
    count = _steps("map", slices)
    first = [x[0] for x in slices]
    _check_step("map", count, lambda *a: function(*a, *extra), first)
    rows = [_arrays(function(*(x[i] for x in slices), *extra)) for i in range(count)]
    return tuple(jnp.stack(ys) for ys in zip(*rows, strict=True))


def _steps(op: str, slices: Sequence[Array]) -> int:
    count = slices[0].shape[0]
    if not isinstance(count, int) or not 0 < count <= MAX_STEPS:
        raise LiteRtUnsupportedError(
            f"{op} over {count} steps has no form that LiteRT can load: from 1 to "
            f"{MAX_STEPS} are written out",
            hint="use fewer steps, or export for cloud-tpu",
        )
    return count


def _arrays(results: Any) -> tuple[Array, ...]:
    listed = results if isinstance(results, tuple | list) else (results,)
    return tuple(jnp.asarray(r) for r in listed)


def _traced(
    function: Callable[..., Any], state: Sequence[Array], more: Sequence[Array]
) -> ClosedJaxpr:
    """Trace a function of (*state, *more): constants among `more` stay what they are.

    The counter of a loop inside starts from one of them.
    """
    unknown = [x for x in more if concrete(x) is None]

    def called_with(*arrays: Array) -> Any:
        rest = iter(arrays[len(state) :])
        given = (next(rest) if concrete(x) is None else x for x in more)
        return function(*arrays[: len(state)], *given)

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (*state, *unknown)]
    context = current()
    trial = LoweringContext(context.target, scope=context.scope, trial=True)
    with lowering(trial):  # what it draws is not drawn
        return jax.make_jaxpr(called_with)(*shapes)


def _check_step(
    op: str, count: int, function: Callable[..., Any], first: Sequence[Array]
) -> None:
    if count > 1:
        step = _traced(lambda *a: _arrays(function(*a)), first, ())
        _check_budget(f"{op} over {count}", count, _size(step.jaxpr))


def _size(jaxpr: Jaxpr) -> int:
    return len(inlined(jaxpr, called)[0])


def _known_results(closed: ClosedJaxpr, inputs: Sequence[Known]) -> list[Known]:
    """Return the results that follow from the inputs that are known: the first ones."""
    equations, results = inlined(closed.jaxpr, called)
    values: dict[Var, Known] = dict(
        zip(closed.jaxpr.constvars, map(concrete, closed.consts), strict=True)
    )
    values |= dict(zip(closed.jaxpr.invars, inputs, strict=False))

    def value(v: Any) -> Known:
        return np.asarray(v.val) if isinstance(v, Literal) else values.get(v)

    for eqn in equations:
        operands = [value(v) for v in eqn.invars]
        if all(x is not None for x in operands) and not eqn.effects:
            with jax.ensure_compile_time_eval():
                found = eqn.primitive.bind(*map(jnp.asarray, operands), **eqn.params)
            listed = found if eqn.primitive.multiple_results else [found]
            values.update(zip(eqn.outvars, map(np.asarray, listed), strict=True))
        elif eqn.primitive.name == "and" and any(
            x is not None and x.dtype == bool and not x.any() for x in operands
        ):
            aval: Any = eqn.outvars[0].aval
            values[eqn.outvars[0]] = np.zeros(aval.shape, bool)
    return [value(v) for v in results]
