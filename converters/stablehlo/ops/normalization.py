"""Normalizations; statistics of half types are float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import row_mean, widen
from tpu_export.converters.stablehlo.registry import Target, lowers

aten = torch.ops.aten
_Norm: TypeAlias = Callable[
    [Array, int, Array | None, Array | None, float], tuple[Array, Array, Array]
]


def _mean_var(x: Array, dims: Sequence[int]) -> tuple[Array, Array]:
    if tuple(dims) == (x.ndim - 1,):
        mean = row_mean(x)
        return mean, row_mean(jnp.square(x - mean))
    mean = jnp.mean(x, axis=tuple(dims), keepdims=True)
    return mean, jnp.mean(jnp.square(x - mean), axis=tuple(dims), keepdims=True)


def _per_channel(x: Array | None, rank: int) -> Array | None:
    return None if x is None else widen(x).reshape(1, -1, *(1,) * (rank - 2))


def _affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    y = y if weight is None else y * widen(weight)
    return y if bias is None else y + widen(bias)


def _norm_eval(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    mean: Array,
    var: Array,
    eps: float,
) -> Array:
    # One multiply and one add, whose operands depend on weights alone and are hoisted.
    scale = lax.rsqrt(widen(var) + eps)
    scale = scale if weight is None else scale * widen(weight)
    shift = -widen(mean) * scale
    shift = shift if bias is None else shift + widen(bias)
    scale, shift = (t.reshape(-1, *(1 for _ in x.shape[2:])) for t in (scale, shift))
    if x.ndim == 2:
        scale, shift = scale.reshape(-1), shift.reshape(-1)
    return (widen(x) * scale + shift).astype(x.dtype)


def _norm_train(
    x: Array, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """Return the output, the batch's mean and its biased variance."""
    dims = (0, *range(2, x.ndim))
    mean, var = _mean_var(widen(x), dims)
    y = (widen(x) - mean) * lax.rsqrt(var + eps)
    y = _affine(y, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))
    return y.astype(x.dtype), mean.reshape(-1), var.reshape(-1)


def _saved(x: Array, mean: Array, var: Array, eps: float) -> tuple[Array, Array]:
    """Return the statistics that torch keeps for its backward, in the dtype of x."""
    return mean.astype(x.dtype), lax.rsqrt(var + eps).astype(x.dtype)


def _running(
    x: Array, old: tuple[Array, Array], new: tuple[Array, Array], momentum: float
) -> tuple[Array, Array]:
    count = x.size // x.shape[1]
    mean, var = new[0], new[1] * (count / (count - 1))
    return (
        (old[0] * (1 - momentum) + mean * momentum).astype(old[0].dtype),
        (old[1] * (1 - momentum) + var * momentum).astype(old[1].dtype),
    )


@lowers(aten.batch_norm.default)
def batch_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Array:
    if training or running_mean is None or running_var is None:
        return _norm_train(x, weight, bias, eps)[0]
    return _norm_eval(x, weight, bias, running_mean, running_var, eps)


@lowers(aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    empty = jnp.zeros((0,), x.dtype)
    y = _norm_eval(x, weight, bias, running_mean, running_var, eps)
    return y, empty, empty


@lowers(aten._native_batch_norm_legit.default, aten.native_batch_norm.default)
def native_batch_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    if not training and running_mean is not None and running_var is not None:
        args = (running_mean, running_var, momentum, eps)
        return batch_norm_no_training(x, weight, bias, *args)
    return batch_norm_no_stats(x, weight, bias, training, momentum, eps)


@lowers(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array]:
    y, mean, var = _norm_train(x, weight, bias, eps)
    return y, *_saved(x, mean, var, eps)


@lowers(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Array, Array, Array, Array, Array]:
    if not training:
        args = (running_mean, running_var, momentum, eps)
        results = batch_norm_no_training(x, weight, bias, *args)
        return (*results, running_mean, running_var)
    y, mean, var = _norm_train(x, weight, bias, eps)
    new = _running(x, (running_mean, running_var), (mean, var), momentum)
    return y, *_saved(x, mean, var, eps), *new


@lowers(aten.instance_norm.default)
def instance_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Array:
    if not use_input_stats and running_mean is not None and running_var is not None:
        return _norm_eval(x, weight, bias, running_mean, running_var, eps)
    mean, var = _mean_var(widen(x), range(2, x.ndim))
    y = (widen(x) - mean) * lax.rsqrt(var + eps)
    y = _affine(y, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))
    return y.astype(x.dtype)


def _trailing(x: Array, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(range(x.ndim - len(normalized_shape), x.ndim))


@lowers(aten.native_layer_norm.default)
def native_layer_norm(
    x: Array,
    normalized_shape: Sequence[int],
    weight: Array | None,
    bias: Array | None,
    eps: float,
) -> tuple[Array, Array, Array]:
    mean, var = _mean_var(widen(x), _trailing(x, normalized_shape))
    rstd = lax.rsqrt(var + eps)
    y = _affine((widen(x) - mean) * rstd, weight, bias).astype(x.dtype)
    return y, mean.astype(x.dtype), rstd.astype(x.dtype)


@lowers(aten.layer_norm.default)
def layer_norm(
    x: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Array:
    return native_layer_norm(x, normalized_shape, weight, bias, eps)[0]


@lowers(aten._fused_rms_norm.default)
def fused_rms_norm(
    x: Array,
    normalized_shape: Sequence[int],
    weight: Array | None,
    eps: float | None,
) -> tuple[Array, Array]:
    wide = widen(x)
    eps = float(np.finfo(wide.dtype).eps) if eps is None else eps
    dims = _trailing(x, normalized_shape)
    rstd = lax.rsqrt(jnp.mean(jnp.square(wide), axis=dims, keepdims=True) + eps)
    return _affine(wide * rstd, weight, None).astype(x.dtype), rstd


@lowers(aten.rms_norm.default)
def rms_norm(
    x: Array,
    normalized_shape: Sequence[int],
    weight: Array | None = None,
    eps: float | None = None,
) -> Array:
    return fused_rms_norm(x, normalized_shape, weight, eps)[0]


def _group_norm(
    x: Array, groups: int, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    split = widen(x).reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    mean, var = _mean_var(split, range(2, split.ndim))
    rstd = lax.rsqrt(var + eps)
    y = ((split - mean) * rstd).reshape(x.shape)
    y = _affine(y, _per_channel(weight, x.ndim), _per_channel(bias, x.ndim))
    stats = (mean.reshape(x.shape[0], groups), rstd.reshape(x.shape[0], groups))
    return y.astype(x.dtype), *stats


def group_norms(norm: _Norm, target: Target | None = None) -> None:
    """Register a group norm, which gives y, and mean and 1/std of [N, groups], as torch's ops."""

    @lowers(aten.group_norm.default, target=target)
    def group_norm(
        x: Array,
        num_groups: int,
        weight: Array | None = None,
        bias: Array | None = None,
        eps: float = 1e-5,
        cudnn_enabled: bool = True,
    ) -> Array:
        return norm(x, num_groups, weight, bias, eps)[0]

    @lowers(aten.native_group_norm.default, target=target)
    def native_group_norm(
        x: Array,
        weight: Array | None,
        bias: Array | None,
        N: int,  # noqa: N803 - the schema's name
        C: int,  # noqa: N803 - the schema's name
        HxW: int,  # noqa: N803 - the schema's name
        group: int,
        eps: float,
    ) -> tuple[Array, Array, Array]:
        y, mean, rstd = norm(x, group, weight, bias, eps)
        return y, mean.astype(x.dtype), rstd.astype(x.dtype)


group_norms(_group_norm)
