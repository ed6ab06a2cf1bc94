"""The margin losses of one label, and of several labels, a row."""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import Number, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

NONE, MEAN, SUM = range(3)


def _refuse_one_row(one_row: bool, reduction: int) -> None:
    if one_row and reduction == NONE:
        raise UnsupportedOptionError(
            "the margin loss of one row without a reduction is [] when torch runs it, "
            "and [1] in the program that torch.export gives",
            hint="pass reduction='sum', which is the same number for one row",
        )


def _reduced(loss: Array, reduction: int) -> Array:
    if reduction == NONE:
        return loss
    return jnp.mean(loss) if reduction == MEAN else jnp.sum(loss)


@lowers(aten.multi_margin_loss.default)
def multi_margin_loss(
    x: Array,
    target: Array,
    p: Number = 1,
    margin: Number = 1,
    weight: Array | None = None,
    reduction: int = MEAN,
) -> Array:
    _refuse_one_row(target.ndim == 0, reduction)
    scores = jnp.atleast_2d(widen(x))
    classes = lax.iota(target.dtype, scores.shape[1])
    is_label = target.reshape(-1, 1) == classes
    score = jnp.sum(jnp.where(is_label, scores, 0), axis=1, keepdims=True)
    short = jnp.maximum(margin - score + scores, 0)
    short = short if p == 1 else jnp.square(short)
    if weight is not None:
        short *= jnp.sum(jnp.where(is_label, widen(weight), 0), axis=1, keepdims=True)
    loss = jnp.sum(jnp.where(is_label, 0, short), axis=1) / scores.shape[1]
    return _reduced(loss, reduction).astype(x.dtype)


@lowers(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(
    x: Array, target: Array, reduction: int
) -> tuple[Array, Array]:
    _refuse_one_row(x.ndim < 2, reduction)
    scores, labels = jnp.atleast_1d(widen(x)), jnp.atleast_1d(target)
    labelled = jnp.cumsum(labels < 0, axis=-1) == 0  # labels end at the first -1
    classes = lax.iota(labels.dtype, labels.shape[-1])
    is_label = labelled[..., None] & (
        labels[..., None] == classes
    )  # [..., label, class]
    hit = jnp.any(is_label, axis=-2)
    score = jnp.sum(jnp.where(is_label, scores[..., None, :], 0), axis=-1)
    short = jnp.maximum(1 - score[..., None] + scores[..., None, :], 0)
    counts = labelled[..., None] & ~hit[..., None, :]
    loss = jnp.sum(jnp.where(counts, short, 0), axis=(-2, -1)) / labels.shape[-1]
    return (
        _reduced(loss, reduction).astype(x.dtype),
        hit.reshape(target.shape).astype(x.dtype),
    )


@lowers(aten.multilabel_margin_loss.default)
def multilabel_margin_loss(x: Array, target: Array, reduction: int = MEAN) -> Array:
    return multilabel_margin_loss_forward(x, target, reduction)[0]
