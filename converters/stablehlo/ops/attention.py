"""Scaled dot-product attention as two products around one softmax."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

# Far below any score, and finite.
HIDDEN = -1e30


def _grouped(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Return q as [..., kv heads, queries per kv head, L, E]; batch dims of all three agree."""
    if k.shape[-3] != v.shape[-3]:
        heads = max(k.shape[-3], v.shape[-3])
        k, v = (jnp.repeat(t, heads // t.shape[-3], axis=-3) for t in (k, v))
    heads = k.shape[-3]
    shape = (*q.shape[:-3], heads, q.shape[-3] // heads, *q.shape[-2:])
    return q.reshape(shape), k, v


def _aligned(q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """Broadcast the batch dims of q, k and v."""
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        batch = jnp.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
        q, k, v = (jnp.broadcast_to(t, (*batch, *t.shape[-2:])) for t in (q, k, v))
    return q, k, v


def _contract(x: Array, y: Array, dim: int) -> Array:
    """Contract the last axis of x [..., (G,) L, K] with axis `dim` of y [..., ., .]."""
    batch = tuple(range(y.ndim - 2))
    dims = (((x.ndim - 1,), (y.ndim + dim,)), (batch, batch))
    return lax.dot_general(x, y, dims, preferred_element_type=widen(x).dtype)


def _scored(q: Array, k: Array, scale: float) -> Array:
    """Return the products of queries and keys, scaled."""
    if current().target == "litert" and q.dtype == jnp.float32:
        return _contract(q * scale, k, -1)  # the layer before q takes the factor in
    return _contract(q, k, -1) * scale


def _visible(q: Array, k: Array, mask: Array | None, is_causal: bool) -> Array | None:
    """Return the mask, boolean or additive, of the scores [..., G, L, S]."""
    if not is_causal:
        return mask
    shape = (q.shape[-2], k.shape[-2])
    rows, cols = (lax.broadcasted_iota(jnp.int32, shape, d) for d in (0, 1))
    causal = rows >= cols
    if mask is None:
        return causal
    return mask & causal if mask.dtype == bool else jnp.where(causal, mask, -jnp.inf)


def _masked_softmax(
    scores: Array, mask: Array | None, safe: bool
) -> tuple[Array, Array]:
    """Return the probabilities and the log of the sum; a row with nothing visible is zero."""
    if mask is not None:
        scores = (
            jnp.where(mask, scores, -jnp.inf)
            if mask.dtype == bool
            else scores + mask.astype(scores.dtype)
        )
    top = jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf)
    top = jnp.where(top == -jnp.inf, 0, top) if safe else top
    exps = jnp.exp(scores - top)
    total = jnp.sum(exps, axis=-1, keepdims=True)
    logsumexp = (top + jnp.log(total))[..., 0]
    return exps / (jnp.where(total == 0, 1, total) if safe else total), logsumexp


def _hidden(scores: Array, mask: Array | None) -> Array:
    """Return the scores with what the mask hides far below all others, and finite.

    Finite, so that no row gives NaN and that LiteRT and TPU know the softmax for what it is.
    """
    if mask is None:
        return scores
    hidden = jnp.asarray(HIDDEN, scores.dtype)
    if mask.dtype == bool and current().target == "litert":
        # A sum runs in XNNPACK, a choice does not; all layers share the mask's own.
        return scores + jnp.where(mask, jnp.zeros((), scores.dtype), hidden)
    if mask.dtype == bool:
        return jnp.where(mask, scores, hidden)
    return scores + jnp.maximum(mask.astype(scores.dtype), hidden)


def _where_seen(mask: Array, x: Array) -> Array:
    """Return x [..., L, E], zero in rows that see nothing."""
    seen = mask if mask.dtype == bool else mask > -jnp.inf
    rows = jnp.any(seen, -1, keepdims=True)
    if current().target == "litert":
        return x * rows.astype(x.dtype)  # in XNNPACK, as above
    return jnp.where(rows, x, jnp.zeros((), x.dtype))


def _same_for_rows(mask: Array) -> bool:
    return mask.ndim > 1 and isinstance(n := mask.shape[-2], int) and n == 1


def _plain_softmax(scores: Array) -> Array:
    keys = (scores.ndim - 1,)  # perhaps none: jnp.max() refuses that
    exps = jnp.exp(scores - lax.expand_dims(lax.reduce_max(scores, keys), keys))
    return exps / jnp.sum(exps, axis=-1, keepdims=True)


def _dropped(probabilities: Array, p: float) -> Array:
    if p == 0:
        return probabilities
    keep = jax.random.bernoulli(current().next_key(), 1 - p, probabilities.shape)
    return jnp.where(keep, probabilities / (1 - p), 0)


def _attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    *,
    grouped: bool = False,
) -> Array:
    """Return the output [..., L, Ev]."""
    heads, length = q.shape[:-2], q.shape[-2]
    grouped = grouped and not q.shape[-3] == k.shape[-3] == v.shape[-3]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    safe = mask is not None and not current().every_row_sees
    mask = _visible(q, k, mask, is_causal)
    q, k, v = _grouped(q, k, v) if grouped else _aligned(q, k, v)
    if mask is not None and safe and not grouped and _same_for_rows(mask):
        # Where no row sees anything, zero values give what torch gives, for one pass less.
        v, safe = _where_seen(mask, v), False
    split = q.shape
    q = _flat(q) if grouped else q
    scores = _scored(q, k, scale).reshape(*split[:-1], k.shape[-2])
    if grouped and mask is not None and mask.ndim > 2:
        mask = _grouped_mask(mask, scores)
    probabilities = _plain_softmax(_hidden(scores, mask))
    probabilities = _dropped(probabilities, dropout_p).astype(v.dtype)
    flat = _flat(probabilities) if grouped else probabilities
    y = _contract(flat, v, -2).astype(v.dtype).reshape(*split[:-1], v.shape[-1])
    if mask is not None and safe:
        y = _where_seen(mask, y)
    return y.reshape(*heads, length, y.shape[-1]) if grouped else y


def _flat(x: Array) -> Array:
    """Return [..., G, L, E] as [..., G * L, E]: one product for the group's heads."""
    return x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])


def _grouped_mask(mask: Array, scores: Array) -> Array:
    """Split the head axis of the mask as the scores' is; a head axis of one broadcasts."""
    heads, group = scores.shape[-4:-2]
    if mask.shape[-3] == 1:
        return mask[..., None, :, :]
    return mask.reshape(*mask.shape[:-3], heads, group, *mask.shape[-2:])


@lowers(aten.scaled_dot_product_attention.default)
def scaled_dot_product_attention(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    args = (q, k, v, attn_mask, dropout_p, is_causal, scale)
    return _attention(*args, grouped=enable_gqa)


@lowers(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention_for_cpu(
    q: Array,
    k: Array,
    v: Array,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array]:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    mask = _visible(q, k, attn_mask, is_causal)
    q, k, v = _aligned(q, k, v)
    scores = _contract(q, k, -1) * scale
    probabilities, logsumexp = _masked_softmax(scores, mask, mask is not None)
    probabilities = _dropped(probabilities, dropout_p).astype(v.dtype)
    return _contract(probabilities, v, -2).astype(v.dtype), logsumexp
