"""Group norms with one axis of channels throughout, so that channels may be last."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import widen
from tpu_export.converters.stablehlo.ops.normalization import group_norms


def _group_mean(x: Array, groups: int) -> Array:
    """Return the mean of each group: [N, C, 1, ...], or [N, 1, 1, ...] of one group."""
    if groups in (1, x.shape[1]):
        first = 1 if groups == 1 else 2
        return jnp.mean(x, axis=tuple(range(first, x.ndim)), keepdims=True)
    each = jnp.mean(x, axis=tuple(range(2, x.ndim))).reshape(x.shape[0], groups, -1)
    mean = jnp.mean(each, axis=2, keepdims=True)
    # A BROADCAST_TO would hold the sizes, of which the batch may be dynamic.
    spread = lax.concatenate([mean] * (x.shape[1] // groups), 2)
    return spread.reshape(*x.shape[:2], *(1 for _ in x.shape[2:]))


def _group_norm(
    x: Array, groups: int, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    mean = _group_mean(widen(x), groups)
    centered = widen(x) - mean
    rstd = lax.rsqrt(_group_mean(jnp.square(centered), groups) + eps)
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    scale = rstd if weight is None else rstd * widen(weight).reshape(shape)
    y = centered * scale
    y = y if bias is None else y + widen(bias).reshape(shape)
    mean, rstd = (t.reshape(x.shape[0], groups, -1)[:, :, 0] for t in (mean, rstd))
    return y.astype(x.dtype), mean, rstd


group_norms(_group_norm, target="litert")
