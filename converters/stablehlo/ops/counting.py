"""Histograms: counts of values whose number of bins is known."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import Number
from tpu_export.converters.stablehlo.ops.indexing import concrete
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.histc.default)
def histc(x: Array, bins: int = 100, min: Number = 0, max: Number = 0) -> Array:
    if x.size == 0:
        return jnp.zeros(bins, x.dtype)
    low, high = jnp.asarray(min, x.dtype), jnp.asarray(max, x.dtype)
    if min == max:
        low, high = jnp.min(x), jnp.max(x)
        flat = low == high
        low, high = jnp.where(flat, low - 1, low), jnp.where(flat, high + 1, high)
    place = jnp.floor((x - low) * bins / (high - low)).astype(jnp.int32)
    place = jnp.where(x == high, bins - 1, place).reshape(-1)
    inside = ((x >= low) & (x <= high)).reshape(-1)
    return jnp.zeros(bins, x.dtype).at[place].add(inside.astype(x.dtype), mode="drop")


@lowers(aten.bincount.default)
def bincount(x: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    known = np.zeros(0, np.int64) if x.size == 0 else concrete(x)
    if known is None:
        raise UnsupportedOptionError(
            "bincount has a length that depends on the data",
            hint="sum a comparison with torch.arange(bins) instead",
        )
    length = max(int(known.max(initial=0)) + 1 if known.size else 0, minlength)
    dtype = jnp.int64 if weights is None else weights.dtype
    values = jnp.ones(x.shape, dtype) if weights is None else weights
    return jnp.zeros(length, dtype).at[x].add(values)
