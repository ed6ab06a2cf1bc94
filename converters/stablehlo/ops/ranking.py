"""Sorted order without a sort, which LiteRT's runtime cannot load.

Each element's rank is the number of elements that come before it; the order is the inverse.
Both are n * n comparisons, so a cost bound stands before them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from tpu_export.runtime.errors import TpuExportError

MAX_PAIRS = 2**24


class LiteRtUnsupportedError(TpuExportError):
    """An op has no form that LiteRT's runtime loads."""

    code = "TPX-0203"


def ranked(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Return (values, order) along `dim`: stable, NaN as the largest.

    Raises:
        LiteRtUnsupportedError: a dynamic size, or too many comparisons.
    """
    _check(x, dim)
    wide = x
    if x.dtype == bool or (
        jnp.issubdtype(x.dtype, jnp.integer) and x.dtype.itemsize < 4
    ):
        wide = x.astype(jnp.int32)  # LiteRT compares 32 bits and more
    rows = jnp.moveaxis(wide, dim, -1)
    if not rows.size:
        return x, jnp.zeros(x.shape, jnp.int64)
    order = _inverse(_ranks(rows, descending))
    indices = [lax.broadcasted_iota(jnp.int32, order.shape, d) for d in range(x.ndim)]
    where = (*indices[:-1], order)
    options: dict[str, Any] = {"wrap_negative_indices": False}
    values = rows.at[where].get(mode="promise_in_bounds", **options).astype(x.dtype)
    moved: Callable[[Array], Array] = partial(jnp.moveaxis, source=-1, destination=dim)
    return moved(values), moved(order.astype(jnp.int64))


def _ranks(rows: Array, descending: bool) -> Array:
    """Count what comes before each place."""
    this, other = rows[..., :, None], rows[..., None, :]
    first = other > this if descending else other < this
    equal = other == this
    if jnp.issubdtype(rows.dtype, jnp.floating):
        odd = rows != rows
        mine, theirs = odd[..., :, None], odd[..., None, :]
        first |= (theirs & ~mine) if descending else (mine & ~theirs)
        equal |= mine & theirs
    places = lax.iota(jnp.int32, rows.shape[-1])
    before = first | (equal & (places[None, :] < places[:, None]))
    return jnp.sum(before, -1, dtype=jnp.int32)


def _inverse(ranks: Array) -> Array:
    """Return the place that has each rank."""
    places = lax.iota(jnp.int32, ranks.shape[-1])
    hit = ranks[..., None, :] == places[:, None]
    return jnp.sum(jnp.where(hit, places, 0), -1, dtype=jnp.int32)


def _check(x: Array, dim: int) -> None:
    if not all(isinstance(d, int) for d in x.shape):
        raise LiteRtUnsupportedError(
            "a sort of a dynamic size has no form that LiteRT can load",
            hint="capture without dynamic_shapes, or export for cloud-tpu",
        )
    pairs = prod(x.shape) * x.shape[dim]
    if pairs > MAX_PAIRS:
        raise LiteRtUnsupportedError(
            f"a sort of {x.shape[dim]} elements in {prod(x.shape) // x.shape[dim]} rows "
            f"needs {pairs} comparisons, more than the {MAX_PAIRS} that LiteRT is given",
            hint="take the best with topk (k up to 64) first, or export for cloud-tpu",
        )
