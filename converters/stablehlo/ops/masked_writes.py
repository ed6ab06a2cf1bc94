"""Writes where a mask holds, without knowing how many places that are."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def masked_put(
    x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool
) -> Array:
    """Write to x where the one mask among `indices` holds, as index_put does."""
    (place,) = (i for i, m in enumerate(indices) if m is not None)
    mask = indices[place]
    assert mask is not None
    rest = x.ndim - place - mask.ndim
    wide = mask.reshape(mask.shape + (1,) * rest)
    listed = values.ndim > rest and not (
        isinstance(values.shape[-rest - 1], int) and values.shape[-rest - 1] == 1
    )
    if listed:
        values = _in_turn(values, mask, values.ndim - rest - 1)
        lead = values.shape[: values.ndim - rest - 1]
        tail = values.shape[values.ndim - rest :]
        values = values.reshape((*lead, *mask.shape, *tail))
    elif values.ndim > rest:
        ones = (1,) * (mask.ndim - 1)
        cut = values.ndim - rest
        values = values.reshape((*values.shape[:cut], *ones, *values.shape[cut:]))
    values = values.astype(x.dtype)
    return jnp.where(wide, x + values if accumulate else values, x)


def _in_turn(source: Array, mask: Array, axis: int) -> Array:
    """At the n-th place of the mask that holds, the n-th slice of `source`.

    A source without slices fits a mask that holds nowhere: nothing is taken.
    """
    order = lax.cumsum(mask.reshape(-1).astype(jnp.int32)) - 1
    if source.shape[axis] == 0:
        shape = (*source.shape[:axis], *order.shape, *source.shape[axis + 1 :])
        return jnp.zeros(shape, source.dtype)
    if not isinstance(source.shape[axis], int):  # it may have no slice in a call
        more = [(0, int(d == axis), 0) for d in range(source.ndim)]
        source = lax.pad(source, jnp.zeros((), source.dtype), more)
    return jnp.take(source, jnp.maximum(order, 0), axis=axis, mode="clip")


@lowers(aten.masked_scatter.default)
def masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    """The n-th chosen place, row by row, takes the n-th element of the source."""
    x, mask = jnp.broadcast_arrays(x, mask)
    taken = _in_turn(source.reshape(-1), mask, 0)
    return jnp.where(mask, taken.reshape(x.shape).astype(x.dtype), x)
