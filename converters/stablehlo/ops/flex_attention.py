"""torch.nn.attention.flex_attention: the user's functions of each score, on all of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax
from torch._higher_order_ops.flat_apply import flat_apply as FLAT_APPLY
from torch._higher_order_ops.flex_attention import (
    flex_attention as FLEX_ATTENTION,
)

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import lowers

Graph: TypeAlias = Callable[..., Any]
_INDEX = "torch._dynamo._trace_wrapped_higher_order_op.ModIndex"


def _everywhere(function: Graph, scores: int, captured: int) -> Graph:
    """Return f(*scores, b, h, i, j, *captured) for all batches, heads, rows and columns.

    Args:
        function: of one score.
        scores: how many arrays [b, h, i, j] it takes first.
        captured: how many arrays it takes last, whole.
    """
    for place in (3, 2, 1, 0):
        axes = [0 if p == place else None for p in range(4)]
        function = jax.vmap(function, (*[0] * scores, *axes, *[None] * captured))
    return function


def _scores(q: Array, k: Array, scale: float) -> Array:
    """Return [b, h, i, j] in float32, or float64 for queries of it."""
    dtype = jnp.float64 if q.dtype == jnp.float64 else jnp.float32
    dims = (((3,), (3,)), ((0, 1), (0, 1)))
    return lax.dot_general(q, k, dims, preferred_element_type=dtype) * scale


def _like(x: Array, q: Array) -> Array:
    """Return keys or values with the batches and the heads of the queries."""
    if x.shape[1] != q.shape[1]:
        x = jnp.repeat(x, q.shape[1] // x.shape[1], axis=1)
    return jnp.broadcast_to(x, (q.shape[0], *x.shape[1:]))


@lowers(FLEX_ATTENTION)
def flex_attention(
    q: Array,
    k: Array,
    v: Array,
    score_mod: Graph,
    block_mask: Sequence[Any],
    scale: float,
    _options: Any,
    captured: Sequence[Any] = (),
    captured_by_mask: Sequence[Any] = (),
) -> tuple[Array, Array, Array]:
    """Blocks say again, coarsely, what the mask's function says: only that is read."""
    scores = _scores(q, _like(k, q), scale)
    places = [jnp.arange(n, dtype=jnp.int32) for n in scores.shape]
    modify = _everywhere(score_mod, 1, len(captured))
    see = _everywhere(block_mask[-1], 0, len(captured_by_mask))
    seen = see(*places, *captured_by_mask)
    scores = jnp.where(
        seen, modify(scores, *places, *captured).astype(scores.dtype), -jnp.inf
    )
    top = jnp.max(scores, axis=-1, keepdims=True)
    exps = jnp.exp(scores - jnp.where(top == -jnp.inf, 0, top))
    total = jnp.sum(exps, axis=-1, keepdims=True)
    weights = exps / jnp.where(total == 0, 1, total)  # a row that sees nothing gives 0
    y = jnp.matmul(weights.astype(q.dtype), _like(v, q).astype(q.dtype))
    logsumexp = jnp.where(top == -jnp.inf, top, top + jnp.log(total))
    log2 = math.log(2)
    return y, logsumexp[..., 0] / log2, top[..., 0] / log2


@lowers(FLAT_APPLY)
def flat_apply(_function: Any, _spec: Any, name: Any, *args: Any) -> Array:
    """Return x[i, j, …], as torch writes indices in the functions of flex_attention."""
    if name != _INDEX:
        raise UnsupportedOptionError(
            "a function that torch keeps whole in the graph (flat_apply)",
            hint="call torch's functions in forward() instead",
        )
    x, *indices = args
    chosen: Array = x[tuple(indices)]
    return chosen
