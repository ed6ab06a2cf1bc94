"""Look-ups in tables: embeddings, bags of them, one-hot rows."""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import composite, widen
from tpu_export.converters.stablehlo.ops.scattering import index_add
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

SUM, MEAN, MAX = range(3)
_FAST = (jnp.float32, jnp.float16)


@lowers(aten.embedding.default)
def embedding(
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    # torch refuses indices outside the table, so 32 bits hold them and nothing is clipped.
    if weight.shape[0] < 2**31:
        indices = indices.astype(jnp.int32)
    numbers = lax.GatherDimensionNumbers((indices.ndim,), (0,), (0,))
    return lax.gather(
        weight,
        indices[..., None],
        numbers,
        (1, weight.shape[1]),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


@lowers(aten.embedding.default, target="litert")
def embedding_lookup(
    weight: Array,
    indices: Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Array:
    """Look up in one op, whose table the quantizer knows; a general gather stays in float."""
    sizes = (*indices.shape, *weight.shape)
    if weight.dtype != jnp.float32 or not all(isinstance(n, int) and n for n in sizes):
        return embedding(weight, indices)
    flat = indices.astype(jnp.int32).reshape(-1)
    rows: Array = composite(
        "odml.embedding_lookup", lambda i, table: embedding(table, i), flat, weight
    )
    return rows.reshape(*indices.shape, weight.shape[1])


@lowers(aten.one_hot.default)
def one_hot(x: Array, num_classes: int = -1) -> Array:
    if isinstance(num_classes, int) and num_classes < 0:
        raise UnsupportedOptionError(
            "one_hot takes its number of classes from the data",
            hint="pass num_classes to torch.nn.functional.one_hot",
        )
    return (x[..., None] == jnp.arange(num_classes, dtype=x.dtype)).astype(jnp.int64)


def _bag_of_each(indices: Array, offsets: Array) -> Array:
    """Return the bag of each index: the last bag that starts at or before it."""
    places = lax.iota(offsets.dtype, indices.shape[0])
    return jnp.sum(offsets[None, :] <= places[:, None], axis=1, dtype=jnp.int32) - 1


def _pooled(rows: Array, bag: Array, members: Array, mode: int) -> tuple[Array, Array]:
    """Pool rows [N, D] by their bags [N]; return the bags [B, D] and their sizes [B].

    A product with members [B, N] would spread infinity and NaN to all bags: 0 times either is
    NaN. Halves are pooled in float32, as torch does.
    """
    bags = members.shape[0]
    counts = jnp.sum(members, axis=1, dtype=jnp.int64)
    if mode == MAX:
        return jnp.where(counts[:, None] > 0, _greatest(rows, members), 0), counts
    wide = widen(rows)
    place = jnp.where(jnp.any(members, axis=0), bag, bags)  # the row of what is in none
    empty = jnp.zeros((bags + 1, rows.shape[1]), wide.dtype)
    sums = index_add(empty, 0, place, wide)[:bags]
    if mode == MEAN:
        sums = sums / jnp.maximum(counts, 1)[:, None].astype(sums.dtype)
    return sums, counts


def _greatest(rows: Array, members: Array) -> Array:
    """Return the maxima [B, D]; of NaNs torch lets only a bag's first row through."""
    low = jnp.asarray(-jnp.inf, rows.dtype)
    plain = jnp.where(rows != rows, low, rows)
    best = jnp.max(jnp.where(members[:, :, None], plain, low), axis=1, initial=low)
    if not rows.shape[0]:
        return best
    first = rows[jnp.argmax(members, axis=1)]
    return jnp.where(first != first, first, best)


@lowers(aten._embedding_bag.default)
def embedding_bag_core(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    bags = offsets.shape[0] - include_last_offset
    bag = _bag_of_each(indices, offsets)
    rows = embedding(weight, indices)
    if per_sample_weights is not None:
        rows = widen(rows) * widen(per_sample_weights)[:, None]
    members = bag[None, :] == lax.iota(jnp.int32, bags)[:, None]
    if padding_idx >= 0:
        members &= (indices != padding_idx)[None, :]
    pooled, counts = _pooled(rows, bag, members, mode)
    counts = counts.astype(offsets.dtype)
    largest = jnp.zeros((bags, weight.shape[1]) if mode == MAX else (bags,), bag.dtype)
    if mode == SUM and padding_idx < 0 and weight.dtype in _FAST:
        bag = bag[:0]  # torch's fast path leaves this result empty
    rest = (bag.astype(offsets.dtype), counts, largest.astype(offsets.dtype))
    return pooled.astype(weight.dtype), *rest


@lowers(aten._embedding_bag_forward_only.default, aten.embedding_bag.default)
def embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    flags = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset)
    args = (weight, indices, offsets, *flags, padding_idx)
    pooled, bag, counts, largest = embedding_bag_core(*args)
    # torch's meta function gives a size to the last offset too.
    counts = jnp.pad(counts, (0, offsets.shape[0] - counts.shape[0]))
    return pooled, bag, counts, largest


@lowers(aten.embedding_bag.padding_idx)
def embedding_bag_padding_idx(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Array | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> tuple[Array, Array, Array, Array]:
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    flags = (scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset)
    return embedding_bag(weight, indices, offsets, *flags, padding)


@lowers(aten.embedding_renorm.default)
def embedding_renorm(
    weight: Array, indices: Array, max_norm: float, norm_type: float
) -> Array:
    """Shorten the rows that are read to max_norm; 1e-7 keeps torch's division from zero."""
    norms = jnp.linalg.norm(weight, norm_type, axis=1)
    read = jnp.zeros(weight.shape[0], bool).at[indices.reshape(-1)].set(True)
    scale = jnp.where(read & (norms > max_norm), max_norm / (norms + 1e-7), 1)
    return weight * scale[:, None].astype(weight.dtype)
