"""Losses with torch's reductions."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import promote, widen
from tpu_export.converters.stablehlo.registry import lowers, lowers_named

aten = torch.ops.aten

NONE, MEAN, SUM = range(3)
_REDUCTIONS = {"none": NONE, "mean": MEAN, "sum": SUM}


def _reduced(loss: Array, reduction: int) -> Array:
    if reduction == NONE:
        return loss
    return jnp.mean(loss) if reduction == MEAN else jnp.sum(loss)


def _elementwise(
    x: Array, target: Array, reduction: int, loss: Callable[[Array, Array], Array]
) -> Array:
    x, target = promote(x, target)
    value = _reduced(loss(widen(x), widen(target)), reduction)
    return value if jnp.iscomplexobj(x) else value.astype(x.dtype)  # |x| is real


@lowers(aten.mse_loss.default)
def mse_loss(x: Array, target: Array, reduction: int = MEAN) -> Array:
    return _elementwise(x, target, reduction, lambda a, b: jnp.square(a - b))


@lowers(aten.l1_loss.default)
def l1_loss(x: Array, target: Array, reduction: int = MEAN) -> Array:
    return _elementwise(x, target, reduction, lambda a, b: jnp.abs(a - b))


@lowers(aten.smooth_l1_loss.default)
def smooth_l1_loss(
    x: Array, target: Array, reduction: int = MEAN, beta: float = 1.0
) -> Array:
    def loss(a: Array, b: Array) -> Array:
        gap = jnp.abs(a - b)
        if beta == 0:
            return gap
        return jnp.where(gap < beta, 0.5 * gap * gap / beta, gap - 0.5 * beta)

    return _elementwise(x, target, reduction, loss)


@lowers(aten.huber_loss.default)
def huber_loss(
    x: Array, target: Array, reduction: int = MEAN, delta: float = 1.0
) -> Array:
    def loss(a: Array, b: Array) -> Array:
        gap = jnp.abs(a - b)
        return jnp.where(gap < delta, 0.5 * gap * gap, delta * (gap - 0.5 * delta))

    return _elementwise(x, target, reduction, loss)


@lowers(aten.kl_div.default)
def kl_div(
    x: Array, target: Array, reduction: int = MEAN, *, log_target: bool = False
) -> Array:
    def loss(a: Array, b: Array) -> Array:
        if log_target:
            return jnp.exp(b) * (b - a)
        entropy = jnp.where(b == 0, 0, b * jnp.log(jnp.where(b == 0, 1, b)))
        return entropy - b * a

    return _elementwise(x, target, reduction, loss)


def _weighted(loss: Array, weight: Array | None) -> Array:
    return loss if weight is None else loss * widen(weight)


@lowers(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    x: Array, target: Array, weight: Array | None = None, reduction: int = MEAN
) -> Array:
    def loss(a: Array, b: Array) -> Array:
        hit, miss = (jnp.maximum(t, -100) for t in (jnp.log(a), jnp.log1p(-a)))
        return _weighted((b - 1) * miss - b * hit, weight)

    return _elementwise(x, target, reduction, loss)


@lowers(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    x: Array,
    target: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    def loss(a: Array, b: Array) -> Array:
        miss = jnp.log1p(jnp.exp(-jnp.abs(a))) + jnp.maximum(-a, 0)
        if pos_weight is not None:
            miss = miss * ((widen(pos_weight) - 1) * b + 1)
        return _weighted((1 - b) * a + miss, weight)

    return _elementwise(x, target, reduction, loss)


def _class_axis(x: Array) -> int:
    return 1 if x.ndim > 1 else 0


def _picked(values: Array, target: Array, dim: int) -> Array:
    """Return each target's value along `dim`: a masked sum, which fuses; no gather."""
    target = jnp.expand_dims(target, dim)
    classes = lax.broadcasted_iota(target.dtype, values.shape, dim)
    return jnp.sum(jnp.where(classes == target, values, 0), axis=dim)


def _nll(
    logp: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Array, Array]:
    """Return the loss and the total weight of the targets that count."""
    dim = _class_axis(logp)
    counts = target != ignore_index
    scales = counts.astype(logp.dtype)
    if weight is not None:
        table = widen(weight).reshape(-1, *(1,) * (logp.ndim - dim - 1))
        own = _picked(jnp.broadcast_to(table, logp.shape), target, dim)
        scales = jnp.where(counts, own, 0)
    losses = jnp.where(counts, -_picked(logp, target, dim) * scales, 0)
    if reduction == NONE:
        return losses, jnp.zeros((), logp.dtype)
    total = jnp.sum(scales)
    summed = jnp.sum(losses)
    return (summed / total if reduction == MEAN else summed), total


@lowers(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    loss, total = _nll(widen(x), target, weight, reduction, ignore_index)
    return loss.astype(x.dtype), total.astype(x.dtype)


@lowers(aten.nll_loss.default, aten.nll_loss2d.default, aten.nll_loss_nd.default)
def nll_loss(
    x: Array,
    target: Array,
    weight: Array | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
) -> Array:
    return nll_loss_forward(x, target, weight, reduction, ignore_index)[0]


@lowers(aten.cross_entropy_loss.default)
def cross_entropy_loss(
    x: Array,
    target: Array,
    weight: Array | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Array:
    dim, wide = _class_axis(x), widen(x)
    shifted = wide - jnp.max(wide, axis=dim, keepdims=True)
    logp = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=dim, keepdims=True))
    if jnp.issubdtype(target.dtype, jnp.floating):
        args = (widen(target), weight, reduction, label_smoothing)
        return _soft_cross_entropy(logp, *args).astype(x.dtype)
    loss, total = _nll(logp, target, weight, reduction, ignore_index)
    if label_smoothing:
        smooth = -jnp.sum(_class_weighted(logp, weight), axis=dim)
        smooth = jnp.where(target != ignore_index, smooth, 0)
        if reduction != NONE:
            smooth = jnp.sum(smooth) / (total if reduction == MEAN else 1)
        share = label_smoothing / x.shape[dim]
        loss = (1 - label_smoothing) * loss + share * smooth
    return loss.astype(x.dtype)


def _class_weighted(logp: Array, weight: Array | None) -> Array:
    if weight is None:
        return logp
    trailing = logp.ndim - _class_axis(logp) - 1
    return logp * widen(weight).reshape(-1, *(1,) * trailing)


def _soft_cross_entropy(
    logp: Array,
    target: Array,
    weight: Array | None,
    reduction: int,
    label_smoothing: float,
) -> Array:
    dim = _class_axis(logp)
    target = target * (1 - label_smoothing) + label_smoothing / logp.shape[dim]
    losses = -jnp.sum(_class_weighted(logp, weight) * target, axis=dim)
    return _reduced(losses, reduction)


@lowers_named("torch_nn::_linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    x: Array,
    linear_weight: Array,
    target: Array,
    linear_bias: Array | None,
    weight: Array | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *_: object,
) -> tuple[Array, None, None, None]:
    """F.linear_cross_entropy; the gradients that torch computes with it are no results here."""
    logits = jnp.matmul(widen(x), widen(linear_weight).T, precision="highest")
    if linear_bias is not None:
        logits = logits + widen(linear_bias)
    options = (_REDUCTIONS[reduction], ignore_index, label_smoothing)
    loss = cross_entropy_loss(logits, target, weight, *options)
    return loss.astype(x.dtype), None, None, None


@lowers_named("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_each(
    x: Array,
    linear_weight: Array,
    target: Array,
    linear_bias: Array | None,
    weight: Array | None,
    ignore_index: int,
    *_: object,
) -> Array:
    args = (x, linear_weight, target, linear_bias, weight)
    return linear_cross_entropy(*args, "none", ignore_index, 0.0)[0]
