"""torch's higher-order ops as native control flow. Subgraphs arrive as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import (
    LoweringContext,
    current,
    lowering,
)
from tpu_export.converters.stablehlo.registry import lowers

higher_order = torch.ops.higher_order
Graph: TypeAlias = Callable[..., Any]
Key: TypeAlias = Array | tuple[()]  # () where nothing is drawn
Results: TypeAlias = tuple[Array, ...]


def _arrays(results: Any) -> tuple[Array, ...]:
    return tuple(jnp.asarray(r) for r in results)


def _threaded(op: Callable[[Key], tuple[Key, Results]]) -> Results:
    """Run control flow that the random key goes into and comes out of, if its graphs draw.

    A key that a graph left in the context would be a tracer of the inside.
    """
    context = current()
    if context.trial:
        return op(())[1]
    trial = LoweringContext(context.target, scope=context.scope, trial=True)
    with lowering(trial):
        jax.eval_shape(lambda: op(()))
    if not trial.drew:
        return op(())[1]
    key, results = op(context.state())
    context.key, context.drew = jnp.asarray(key), True
    return results


def _keyed(graph: Graph) -> Callable[..., tuple[Key, Results]]:
    """Return the graph as a function of (key, *inputs) that gives (next key, results)."""

    def run(key: Key, *inputs: Any) -> tuple[Key, Results]:
        if isinstance(key, tuple):
            return key, _arrays(graph(*inputs))
        context = current()
        outside, context.key = context.key, key
        results = _arrays(graph(*inputs))
        inside, context.key = context.state(), outside
        return inside, results

    return run


@lowers(higher_order.cond)
def cond(
    pred: Any, true_graph: Graph, false_graph: Graph, operands: Sequence[Any] = ()
) -> Results:
    chosen = jnp.reshape(jnp.asarray(pred), ())
    yes, no, arrays = _keyed(true_graph), _keyed(false_graph), _arrays(operands)
    return _threaded(lambda key: lax.cond(chosen, yes, no, key, *arrays))


@lowers(higher_order.while_loop)
def while_loop(
    cond_graph: Graph, body: Graph, carried: Sequence[Any], extra: Sequence[Any] = ()
) -> Results:
    def goes_on(key: Key, state: Results) -> tuple[Key, Array]:
        key, found = _keyed(_listed(cond_graph))(key, *state, *extra)
        return key, jnp.reshape(found[0], ())

    def step(key: Key, state: Results) -> tuple[Key, Results]:
        return _keyed(body)(key, *state, *extra)

    def plain(state: Results) -> Results:
        return lax.while_loop(
            lambda s: goes_on((), s)[1], lambda s: step((), s)[1], state
        )

    def loop(key: Key) -> tuple[Key, Results]:
        if isinstance(key, tuple):
            return key, plain(_arrays(carried))
        return _drawing_loop(goes_on, step, key, _arrays(carried))

    return _threaded(loop)


def _drawing_loop(
    goes_on: Callable[[Key, Results], tuple[Key, Array]],
    step: Callable[[Key, Results], tuple[Key, Results]],
    key: Key,
    state: Results,
) -> tuple[Key, Results]:
    """Carry the condition: it may draw too, and lax's conditions give no next key."""

    def body(carry: Any) -> Any:
        key, state = step(carry[0], carry[2])
        return (*goes_on(key, state), state)

    carry = (*goes_on(key, state), state)
    key, _, state = lax.while_loop(lambda c: c[1], body, carry)
    return key, state


def _listed(graph: Graph) -> Graph:
    def run(*inputs: Any) -> Any:
        found = graph(*inputs)
        return found if isinstance(found, tuple | list) else (found,)

    return run


@lowers(higher_order.scan)
def scan(
    combine: Graph, init: Sequence[Any], xs: Sequence[Any], extra: Sequence[Any] = ()
) -> Results:
    def step(carry: Any, slices: Results) -> Any:
        key, state = carry
        key, results = _keyed(combine)(key, *state, *slices, *extra)
        return (key, results[: len(state)]), results[len(state) :]

    def loop(key: Key) -> tuple[Key, Results]:
        (key, state), ys = lax.scan(step, (key, _arrays(init)), _arrays(xs))
        return key, (*state, *ys)

    return _threaded(loop)


@lowers(higher_order.associative_scan)
def associative_scan(
    combine: Graph, xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    def pair(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
        return _arrays(combine(*left, *right, *extra))

    return tuple(lax.associative_scan(jax.vmap(pair), _arrays(xs), axis=0))


@lowers(higher_order.map_impl)
def map_(function: Graph, xs: Sequence[Any], extra: Sequence[Any] = ()) -> Results:
    def step(key: Key, slices: Results) -> tuple[Key, Results]:
        return _keyed(function)(key, *slices, *extra)

    return _threaded(lambda key: lax.scan(step, key, _arrays(xs)))


@lowers(higher_order.wrap_with_set_grad_enabled)
def with_grad_mode(_: bool, graph: Graph, *operands: Any) -> Any:
    return graph(*operands)


@lowers(higher_order.wrap_with_autocast)
def with_autocast(
    _device: str, _dtype: Any, _enabled: bool, _cache: Any, graph: Graph, *operands: Any
) -> Any:
    return graph(*operands)
