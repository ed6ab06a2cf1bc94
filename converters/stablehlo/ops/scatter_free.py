"""Writes by index without a scatter, which LiteRT's runtime cannot load.

Every place compares its number with every index. A sum of floats is a product with that
one-hot matrix, other reductions are a select and a reduction, and a plain write looks up
the last index that matches. `pairs` below are (place, index), each an element in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import highest, lowest
from tpu_export.converters.stablehlo.ops.sorting import LiteRtUnsupportedError

MAX_PAIRS = 2**24
_REDUCTIONS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "add": (jnp.sum, jnp.add),
    "multiply": (jnp.prod, jnp.multiply),
    "max": (jnp.max, jnp.maximum),
    "min": (jnp.min, jnp.minimum),
}


def _in_int32(write: Callable[..., Array]) -> Callable[..., Array]:
    """Write narrow integers as int32: LiteRT lacks many kernels for them."""

    def widened(x: Array, *args: Any) -> Array:
        narrow = x.dtype == bool or jnp.issubdtype(x.dtype, jnp.integer)
        if not narrow or x.dtype.itemsize >= 4:
            return write(x, *args)
        *where, values, method = args
        y = write(x.astype(jnp.int32), *where, values.astype(jnp.int32), method)
        return y.astype(x.dtype)

    return widened


@_in_int32
def write_along(x: Array, dim: int, index: Array, values: Array, method: str) -> Array:
    """Write values[…, j, …] to x[…, index[…, j, …], …] at `dim`, as torch.scatter does."""
    _check_static(x, index, values)
    if not values.size or not x.size:
        return x
    part = x
    for d in range(x.ndim):
        if d != dim and index.shape[d] < x.shape[d]:
            part = lax.slice_in_dim(part, 0, index.shape[d], axis=d)
    moved = jnp.moveaxis(index.astype(jnp.int32), dim, -1)
    y = _write(part, dim, moved, values, method)
    return y if part is x else lax.dynamic_update_slice(x, y, (0,) * x.ndim)


@_in_int32
def write_at(x: Array, where: Sequence[Any], values: Array, method: str) -> Array:
    """Write as ``x.at[where]`` does: index arrays that broadcast, and slices."""
    where = _without_ellipsis(where, x.ndim)
    where = tuple(_numbers(w, x.shape[d]) for d, w in enumerate(where))
    _check_static(x, values, *(w for w in where if isinstance(w, Array)))
    values = jnp.broadcast_to(values, jax.eval_shape(lambda a: a[where], x).shape)
    if not values.size:
        return x
    dims = [d for d, w in enumerate(where) if isinstance(w, Array)]
    first, apart = dims[0], dims[-1] - dims[0] >= len(dims)
    indices = jnp.broadcast_arrays(*(where[d] for d in dims))
    if apart:  # NumPy then puts the indexed dims first
        x, first = jnp.moveaxis(x, dims, range(len(dims))), 0
    y = _write_merged(x, first, indices, values, method)
    return jnp.moveaxis(y, range(len(dims)), dims) if apart else y


def _write_merged(
    x: Array, first: int, indices: Sequence[Array], values: Array, method: str
) -> Array:
    """Write to x.at[indices] where they index adjacent dims: one dim, once merged."""
    last = first + len(indices)
    flat = jnp.zeros((), jnp.int32)
    for d, index in zip(range(first, last), indices, strict=True):
        flat = flat * x.shape[d] + index.astype(jnp.int32)
    lead, rest = x.shape[:first], x.shape[last:]
    merged = x.reshape(*lead, prod(x.shape[first:last]), *rest)
    values = values.reshape(*lead, flat.size, *rest)
    y = _write(merged, first, flat.reshape(-1), values, method)
    return y.reshape(x.shape)


def _write(x: Array, dim: int, index: Array, values: Array, method: str) -> Array:
    """Write at `dim`: by one index [J] for all, or by [..., J] each, moved to the end."""
    size = x.shape[dim]
    product = jnp.issubdtype(x.dtype, jnp.floating) and method == "add"
    pairs = index.size * size
    if index.ndim == 1 and not product and method != "set":
        pairs *= x.size // size
    if pairs > MAX_PAIRS:
        raise LiteRtUnsupportedError(
            f"a write to {size} places by {index.shape[-1]} indices needs {pairs} "
            f"comparisons, more than the {MAX_PAIRS} that LiteRT is given",
            hint="write fewer places at once, or export for cloud-tpu",
        )
    hot = index[..., None, :] == lax.iota(jnp.int32, size)[:, None]
    if method == "set":
        return _set(x, dim, hot, values)
    old, new = jnp.moveaxis(x, dim, -1), jnp.moveaxis(values, dim, -1)
    y = _added(old, hot, new) if product else _reduced(old, hot, new, method)
    return jnp.moveaxis(y, -1, dim)


def _set(x: Array, dim: int, hot: Array, values: Array) -> Array:
    """Take the last of the values written to a place, as torch does on a CPU."""
    order = lax.iota(jnp.int32, hot.shape[-1])
    last = jnp.max(jnp.where(hot, order, -1), axis=-1)
    source = jnp.maximum(last, 0)
    where: tuple[Any, ...] = (slice(None),) * dim + (source,)
    if last.ndim == 1:
        last = last.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
    else:
        last, source = jnp.moveaxis(last, -1, dim), jnp.moveaxis(source, -1, dim)
        where = tuple(
            source if d == dim else lax.broadcasted_iota(jnp.int32, source.shape, d)
            for d in range(x.ndim)
        )
    options: dict[str, Any] = {"wrap_negative_indices": False}
    taken = values.at[where].get(mode="promise_in_bounds", **options)
    return jnp.where(last >= 0, taken, x)


def _added(x: Array, hot: Array, values: Array) -> Array:
    """Add by a product. 0 times infinity is NaN: what is not finite is counted apart."""
    infinity = jnp.asarray(jnp.inf, values.dtype)
    finite = jnp.where(jnp.abs(values) < infinity, values, 0)
    odd = (values == infinity, values == -infinity, values != values)
    parts = jnp.stack([finite, *(o.astype(values.dtype) for o in odd)], axis=-2)
    matrix = jnp.swapaxes(hot, -1, -2).astype(values.dtype)
    sums = jnp.matmul(parts, matrix, precision=lax.Precision.HIGHEST)
    total, up, down, nan = (sums[..., i, :] for i in range(4))
    total += jnp.where(up > 0, infinity, 0) - jnp.where(down > 0, infinity, 0)
    return x + jnp.where(nan > 0, jnp.nan, total)


def _reduced(x: Array, hot: Array, values: Array, method: str) -> Array:
    reduction, combine = _REDUCTIONS[method]
    start = jnp.asarray(_start(method, x.dtype), x.dtype)
    candidates = values[..., None, :]
    found = reduction(jnp.where(hot, candidates, start), axis=-1).astype(x.dtype)
    y = combine(x, found)
    if method in ("add", "multiply") or not jnp.issubdtype(x.dtype, jnp.floating):
        return y
    # LiteRT's extremes lose NaN; torch's keep it.
    odd = jnp.sum(jnp.where(hot, (candidates != candidates).astype(x.dtype), 0), -1)
    return jnp.where((odd > 0) | (x != x), jnp.nan, y)


def _start(method: str, dtype: Any) -> Any:
    """Return what a reduction starts from: it changes nothing."""
    if method in ("add", "multiply"):
        return 0 if method == "add" else 1
    return highest(dtype) if method == "min" else lowest(dtype)


def _without_ellipsis(where: Sequence[Any], rank: int) -> tuple[Any, ...]:
    full = (slice(None),) * (rank - len(where) + 1)
    return tuple(w for part in where for w in (full if part is ... else (part,)))


def _numbers(where: Any, size: int) -> Any:
    """Return a slice that leaves something out as the places it selects."""
    if not isinstance(where, slice):
        return jnp.asarray(where)
    if where == slice(None):
        return where
    return jnp.arange(*where.indices(size), dtype=jnp.int32)


def _check_static(*arrays: Array) -> None:
    if not all(isinstance(d, int) for a in arrays for d in a.shape):
        raise LiteRtUnsupportedError(
            "a write by index to a dynamic size has no form that LiteRT can load",
            hint="capture without dynamic_shapes, or export for cloud-tpu",
        )
