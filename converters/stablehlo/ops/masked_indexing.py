"""Reads and sums by index under a mask: what torch decomposes resizes' borders into."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import Number, cast
from tpu_export.converters.stablehlo.ops.indexing import index_tensor, places
from tpu_export.converters.stablehlo.ops.scattering import index_put
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _within(
    x: Array, mask: Array, indices: Sequence[Array | None]
) -> list[Array | None]:
    """Return indices that are in range where the mask says nothing is read."""
    where = [i for i in places(x, indices) if not isinstance(i, slice)]
    feed = iter(where)
    return [None if i is None else jnp.where(mask, next(feed), 0) for i in indices]


@lowers(aten._unsafe_masked_index.default)
def unsafe_masked_index(
    x: Array, mask: Array, indices: Sequence[Array | None], fill: Number
) -> Array:
    y = index_tensor(x, _within(x, mask, indices))
    return jnp.where(mask, y, cast(fill, x.dtype))


@lowers(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put_accumulate(
    x: Array, mask: Array, indices: Sequence[Array | None], values: Array
) -> Array:
    kept = jnp.where(mask, values, cast(0, values.dtype))
    return index_put(x, _within(x, mask, indices), kept, accumulate=True)
