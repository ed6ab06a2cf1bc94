"""Reductions over consecutive segments of an axis."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import Number
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -jnp.inf, "min": jnp.inf}
_REDUCE: dict[str, Callable[..., Array]] = {
    "sum": jnp.sum,
    "mean": jnp.sum,
    "prod": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
}


@lowers(aten.segment_reduce.default)
def segment_reduce(
    x: Array,
    reduce: str,
    *,
    lengths: Array | None = None,
    indices: Array | None = None,
    offsets: Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> Array:
    """Reduce x [*lead, n, *rest] to [*lead, segments, *rest]."""
    if offsets is None:
        assert lengths is not None
        total = jnp.cumsum(lengths, axis=-1)
        offsets = jnp.concatenate([jnp.zeros_like(total[..., :1]), total], axis=-1)
    start = _NEUTRAL[reduce] if initial is None else initial

    def one(x: Array, offsets: Array) -> Array:
        at = jnp.arange(x.shape[0])
        inside = (at >= offsets[:-1, None]) & (at < offsets[1:, None])
        inside = inside.reshape(*inside.shape, *[1] * (x.ndim - 1))
        chosen = jnp.where(inside, x, jnp.asarray(_NEUTRAL[reduce], x.dtype))
        value = _REDUCE[reduce](chosen, axis=1)
        value = _REDUCE[reduce](jnp.stack([value, jnp.full_like(value, start)]), axis=0)
        if reduce != "mean":
            return value
        count = jnp.diff(offsets).reshape(-1, *[1] * (x.ndim - 1))
        mean = value / jnp.maximum(count, 1).astype(x.dtype)
        empty = jnp.nan if initial is None else initial
        return jnp.where(count == 0, jnp.asarray(empty, x.dtype), mean)

    for _ in range(offsets.ndim - 1):
        one = jax.vmap(one)
    return one(x, offsets)
