"""Histograms: counts of values whose number of bins is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import Number
from tpu_export.converters.stablehlo.ops.indexing import concrete, counted
from tpu_export.converters.stablehlo.ops.scatter_free import write_along
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
    if current().target == "litert":
        counts = jnp.zeros(bins, jnp.int32)
        found = write_along(counts, 0, place, inside.astype(jnp.int32), "add")
        return found.astype(x.dtype)
    return jnp.zeros(bins, x.dtype).at[place].add(inside.astype(x.dtype), mode="drop")


@lowers(aten.bincount.default)
def bincount(x: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    known = np.zeros(0, np.int64) if x.size == 0 else concrete(x)
    if known is None:
        length = counted("bincount")
    else:
        length = max(int(known.max(initial=0)) + 1 if known.size else 0, minlength)
    dtype = jnp.dtype(jnp.int64)
    if weights is not None:  # torch sums all but float32 in float64
        single = weights.dtype == jnp.float32
        dtype = jnp.dtype(jnp.float32 if single else jnp.float64)
    values = jnp.ones(x.shape, dtype) if weights is None else weights.astype(dtype)
    return jnp.zeros(length, dtype).at[x].add(values)


def _edges(x: Array, bins: int, limits: Sequence[float] | None) -> Array:
    """Return bins + 1 edges of one column, from its extremes unless limits are given."""
    if limits is not None and limits[0] != limits[1]:
        return jnp.linspace(limits[0], limits[1], bins + 1, dtype=x.dtype)
    if not x.size:
        return jnp.linspace(0, 1, bins + 1, dtype=x.dtype)
    low, high = jnp.min(x), jnp.max(x)
    if limits is not None:
        low = high = jnp.asarray(limits[0], x.dtype)
    flat = low == high
    low, high = jnp.where(flat, low - 0.5, low), jnp.where(flat, high + 0.5, high)
    return jnp.linspace(low, high, bins + 1, dtype=x.dtype)


def _histogram(
    rows: Array, edges: Sequence[Array], weight: Array | None, density: bool
) -> Array:
    """Count rows [n, d] into bins of d sorted sequences of edges."""
    counts = [edge.shape[0] - 1 for edge in edges]
    place = jnp.zeros(rows.shape[0], jnp.int32)
    inside = jnp.ones(rows.shape[0], bool)
    for d, (edge, count) in enumerate(zip(edges, counts, strict=True)):
        x = rows[:, d]
        at = jnp.searchsorted(edge, x, side="right").astype(jnp.int32) - 1
        at = jnp.where(x == edge[-1], count - 1, at)  # the last bin is closed
        inside &= (x >= edge[0]) & (x <= edge[-1])
        place = place * count + jnp.clip(at, 0, count - 1)
    values = (
        jnp.ones(rows.shape[0], rows.dtype) if weight is None else weight.reshape(-1)
    )
    values = jnp.where(inside, values, 0).astype(rows.dtype)
    flat = jnp.zeros(math.prod(counts), rows.dtype).at[place].add(values)
    found = flat.reshape(counts)
    if density:
        found = found / jnp.sum(found)
        for d, edge in enumerate(edges):
            shape = [-1 if a == d else 1 for a in range(len(edges))]
            found = found / jnp.diff(edge).reshape(shape)
    return found


@lowers(aten.histogram.bin_ct)
def histogram(
    x: Array,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> tuple[Array, Array]:
    edges = _edges(x, bins, range)
    return _histogram(x.reshape(-1, 1), [edges], weight, density), edges


@lowers(aten.histogram.bins_tensor)
def histogram_of_edges(
    x: Array, bins: Array, *, weight: Array | None = None, density: bool = False
) -> tuple[Array, Array]:
    return _histogram(x.reshape(-1, 1), [bins], weight, density), bins


@lowers(aten._histogramdd_bin_edges.default)
def histogramdd_bin_edges(
    x: Array,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> tuple[Array, ...]:
    rows = x.reshape(-1, x.shape[-1])
    limits = [
        None if range is None else range[2 * d : 2 * d + 2] for d, _ in enumerate(bins)
    ]
    return tuple(_edges(rows[:, d], n, limits[d]) for d, n in enumerate(bins))


@lowers(aten._histogramdd_from_bin_tensors.default)
def histogramdd_from_bin_tensors(
    x: Array,
    bins: Sequence[Array],
    *,
    weight: Array | None = None,
    density: bool = False,
) -> Array:
    return _histogram(x.reshape(-1, x.shape[-1]), bins, weight, density)


@lowers(aten._histogramdd_from_bin_cts.default)
def histogramdd_from_bin_cts(
    x: Array,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Array | None = None,
    density: bool = False,
) -> Array:
    edges = histogramdd_bin_edges(x, bins, range=range)
    return histogramdd_from_bin_tensors(x, edges, weight=weight, density=density)
