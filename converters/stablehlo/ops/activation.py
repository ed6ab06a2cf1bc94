"""Activations, softmax and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import (
    Number,
    axis,
    cast,
    composite,
    floating,
    widen,
)
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


def _gelu(x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + jnp.tanh(inner))
    return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


def _elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    negative = alpha * jnp.expm1(jnp.minimum(x, 0) * input_scale)
    return scale * jnp.where(x > 0, x, negative)


def _celu(x: Array, alpha: float = 1.0) -> Array:
    return _elu(x, alpha, 1, 1 / alpha)


def _selu(x: Array) -> Array:
    return _elu(x, SELU_ALPHA, SELU_SCALE)


def _softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    # Clamped, so that the branch not taken cannot overflow.
    soft = jnp.log1p(jnp.exp(jnp.minimum(x * beta, threshold))) / beta
    return jnp.where(x * beta > threshold, x, soft)


def _mish(x: Array) -> Array:
    return x * jnp.tanh(_logaddexp0(x))


def _logaddexp0(x: Array) -> Array:
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


def _log_sigmoid(x: Array) -> Array:
    return jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x)))


def _hardsigmoid(x: Array) -> Array:
    return jnp.clip(x + 3, 0, 6) / 6


def _hardswish(x: Array) -> Array:
    return x * jnp.clip(x + 3, 0, 6) / 6


def _softshrink(x: Array, lambd: float = 0.5) -> Array:
    # x * 0 keeps NaN, which torch's kernel lets through.
    return jnp.where(x > lambd, x - lambd, jnp.where(x < -lambd, x + lambd, x * 0))


def _hardshrink(x: Array, lambd: float = 0.5) -> Array:
    return jnp.where((x >= -lambd) & (x <= lambd), jnp.zeros_like(x), x)


def _leaky_relu(x: Array, negative_slope: float = 0.01) -> Array:
    return jnp.where(x > 0, x, x * negative_slope)


_FLOAT: dict[Any, Callable[..., Array]] = {
    aten.gelu.default: _gelu,
    aten.silu.default: lambda x: x * lax.logistic(x),
    aten.mish.default: _mish,
    aten.hardswish.default: _hardswish,
    aten.hardsigmoid.default: _hardsigmoid,
    aten.elu.default: _elu,
    aten.celu.default: _celu,
    aten.selu.default: _selu,
    aten.leaky_relu.default: _leaky_relu,
    aten.softplus.default: _softplus,
    aten.softshrink.default: _softshrink,
    aten.hardshrink.default: _hardshrink,
    aten.log_sigmoid.default: _log_sigmoid,
    aten.tanh.default: jnp.tanh,
    aten.sigmoid.default: lax.logistic,
}


def _in_opmath(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compute in float32 for half types and round once, as torch's kernels do."""

    def rule(x: Array, *args: Any, **kwargs: Any) -> Array:
        (x,) = floating(x)
        return function(widen(x), *args, **kwargs).astype(x.dtype)

    return rule


for _op, _function in _FLOAT.items():
    lowers(_op)(_in_opmath(_function))


@lowers(aten.gelu.default, target="litert")
def gelu_composite(x: Array, *, approximate: str = "none") -> Array:
    return _fused(
        "aten.gelu.default",
        lambda y: _gelu(y, approximate),
        x,
        approximate=approximate,
    )


@lowers(aten.hardswish.default, target="litert")
def hardswish_composite(x: Array) -> Array:
    return _fused("aten.hardswish.default", _hardswish, x)


def _fused(
    name: str, function: Callable[[Array], Array], x: Array, **attributes: object
) -> Array:
    y: Array = composite(name, function, widen(x), **attributes)
    return y.astype(x.dtype)


@lowers(aten.relu.default)
def relu(x: Array) -> Array:
    return jnp.maximum(x, jnp.zeros((), x.dtype))


@lowers(aten.relu6.default)
def relu6(x: Array) -> Array:
    return hardtanh(x, 0, 6)


@lowers(aten.hardtanh.default)
def hardtanh(x: Array, min_val: Number = -1, max_val: Number = 1) -> Array:
    return jnp.minimum(jnp.maximum(x, cast(min_val, x.dtype)), cast(max_val, x.dtype))


@lowers(aten.threshold.default)
def threshold(x: Array, threshold: Number, value: Number) -> Array:
    return jnp.where(x <= threshold, cast(value, x.dtype), x)


@lowers(aten.prelu.default)
def prelu(x: Array, weight: Array) -> Array:
    if weight.ndim == 1 and x.ndim > 1:
        weight = weight.reshape((1, -1) + (1,) * (x.ndim - 2))
    return jnp.where(x > 0, x, weight.reshape(()) * x if x.ndim == 0 else weight * x)


@lowers(aten._prelu_kernel.default)
def prelu_kernel(x: Array, weight: Array) -> Array:
    return jnp.where(x > 0, x, weight * x)


@lowers(aten.rrelu.default)
def rrelu(
    x: Array,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: None = None,
) -> Array:
    if not training:
        return _leaky_relu(x, (lower + upper) / 2)
    slopes = jax.random.uniform(
        current().next_key(), x.shape, widen(x).dtype, lower, upper
    )
    return jnp.where(x > 0, x, (x * slopes).astype(x.dtype))


@lowers(aten.glu.default)
def glu(x: Array, dim: int = -1) -> Array:
    dim = axis(dim, x.ndim)
    half = x.shape[dim] // 2
    value = lax.slice_in_dim(x, 0, half, axis=dim)
    gate = lax.slice_in_dim(x, half, None, axis=dim)
    return (widen(value) * lax.logistic(widen(gate))).astype(x.dtype)


@lowers(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(x: Array) -> tuple[Array, Array]:
    # The second result is a scratch buffer of torch's backward; on CPU it is exp(-|x|).
    y = _log_sigmoid(widen(x)).astype(x.dtype)
    return y, jnp.exp(-jnp.abs(widen(x))).astype(x.dtype)


def _softmax_last(x: Array, dim: int, *, log: bool, safe: bool) -> Array:
    shape, dim = x.shape, axis(dim, x.ndim)
    x = x.reshape((1,)) if not shape else x
    low = jnp.array(-jnp.inf, x.dtype)
    top = jnp.expand_dims(lax.reduce(x, low, lax.max, (dim,)), dim)
    if safe:
        top = jnp.where(top == low, jnp.zeros_like(top), top)
    shifted = x - top
    exps = jnp.exp(shifted)
    total = jnp.sum(exps, axis=dim, keepdims=True)
    if log:
        return (shifted - jnp.log(total)).reshape(shape)
    if safe:
        total = jnp.where(total == 0, jnp.ones_like(total), total)
    return (exps / total).reshape(shape)


def _softmax(
    x: Array, dim: int, dtype: torch.dtype | None, *, log: bool, safe: bool = False
) -> Array:
    x = x if dtype is None else cast(x, dtype)
    (x,) = floating(x)
    return _softmax_last(widen(x), dim, log=log, safe=safe).astype(x.dtype)


@lowers(aten.softmax.int, aten.special_softmax.default)
def softmax(x: Array, dim: int, dtype: torch.dtype | None = None) -> Array:
    return _softmax(x, dim, dtype, log=False)


@lowers(aten.log_softmax.int, aten.special_log_softmax.default)
def log_softmax(x: Array, dim: int, dtype: torch.dtype | None = None) -> Array:
    return _softmax(x, dim, dtype, log=True)


@lowers(aten._safe_softmax.default)
def safe_softmax(x: Array, dim: int, dtype: torch.dtype | None = None) -> Array:
    return _softmax(x, dim, dtype, log=False, safe=True)


@lowers(aten._softmax.default)
def softmax_core(x: Array, dim: int, half_to_float: bool) -> Array:
    return _softmax(x, dim, torch.float32 if half_to_float else None, log=False)


@lowers(aten._log_softmax.default)
def log_softmax_core(x: Array, dim: int, half_to_float: bool) -> Array:
    return _softmax(x, dim, torch.float32 if half_to_float else None, log=True)
