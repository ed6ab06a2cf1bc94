"""torch's higher-order ops as native control flow. Subgraphs arrive as functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.registry import lowers

higher_order = torch.ops.higher_order
Graph: TypeAlias = Callable[..., Any]


def _arrays(results: Any) -> tuple[Array, ...]:
    return tuple(jnp.asarray(r) for r in results)


@lowers(higher_order.cond)
def cond(
    pred: Any, true_graph: Graph, false_graph: Graph, operands: Sequence[Any] = ()
) -> tuple[Array, ...]:
    results = lax.cond(
        jnp.reshape(jnp.asarray(pred), ()),
        lambda *xs: _arrays(true_graph(*xs)),
        lambda *xs: _arrays(false_graph(*xs)),
        *map(jnp.asarray, operands),
    )
    return tuple(results)


@lowers(higher_order.while_loop)
def while_loop(
    cond_graph: Graph, body: Graph, carried: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    def go_on(state: tuple[Array, ...]) -> Array:
        found = cond_graph(*state, *extra)
        return jnp.reshape(found[0] if isinstance(found, tuple | list) else found, ())

    return lax.while_loop(
        go_on, lambda state: _arrays(body(*state, *extra)), _arrays(carried)
    )


@lowers(higher_order.scan)
def scan(
    combine: Graph, init: Sequence[Any], xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    def step(state: tuple[Array, ...], slices: tuple[Array, ...]) -> Any:
        results = _arrays(combine(*state, *slices, *extra))
        return results[: len(state)], results[len(state) :]

    state, ys = lax.scan(step, _arrays(init), _arrays(xs))
    return (*state, *ys)


@lowers(higher_order.associative_scan)
def associative_scan(
    combine: Graph, xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    def pair(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
        return _arrays(combine(*left, *right, *extra))

    return tuple(lax.associative_scan(jax.vmap(pair), _arrays(xs), axis=0))


@lowers(higher_order.map_impl)
def map_(
    function: Graph, xs: Sequence[Any], extra: Sequence[Any] = ()
) -> tuple[Array, ...]:
    results = lax.map(lambda slices: _arrays(function(*slices, *extra)), _arrays(xs))
    return tuple(results)


@lowers(higher_order.wrap_with_set_grad_enabled)
def with_grad_mode(_: bool, graph: Graph, *operands: Any) -> Any:
    return graph(*operands)


@lowers(higher_order.wrap_with_autocast)
def with_autocast(
    _device: str, _dtype: Any, _enabled: bool, _cache: Any, graph: Graph, *operands: Any
) -> Any:
    return graph(*operands)
