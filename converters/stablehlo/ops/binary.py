"""Functions of two or three tensors, element by element, with torch's promotion."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import (
    DTYPES,
    Number,
    Operand,
    cast,
    floating,
    in_opmath,
    promote,
    result_type,
    widen,
)
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
_HALF = (DTYPES[torch.float16], DTYPES[torch.bfloat16])


def _exact(x: Operand, dtype: np.dtype[Any]) -> bool:
    """Whether a Python float survives the rounding to a half type."""
    return not isinstance(x, float) or x != x or float(dtype.type(x)) == x


def _arithmetic(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """Promote; Python floats meet half types in float32, as in torch's kernels."""

    def rule(x: Operand, y: Operand) -> Array:
        dtype = result_type(x, y)
        if dtype in _HALF and not (_exact(x, dtype) and _exact(y, dtype)):
            wide = np.dtype(np.float32)
            return function(cast(cast_half(x, dtype), wide), cast(y, wide)).astype(
                dtype
            )
        return function(cast(x, dtype), cast(y, dtype))

    return rule


def cast_half(x: Operand, dtype: np.dtype[Any]) -> Operand:
    return x if isinstance(x, float) else cast(x, dtype)


_add = _arithmetic(jnp.add)
_sub = _arithmetic(jnp.subtract)
mul = _arithmetic(jnp.multiply)
lowers(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)(
    mul
)


def _with_alpha(
    function: Callable[[Operand, Operand], Array], x: Operand, y: Operand, alpha: Number
) -> Array:
    if isinstance(alpha, int | float) and alpha == 1:
        return function(x, y)
    dtype = result_type(x, y)
    wide = np.dtype(np.float32) if dtype in _HALF else dtype
    y = cast(y, dtype).astype(wide) * cast(alpha, wide)
    return function(cast(x, dtype).astype(wide), y).astype(dtype)


@lowers(aten.add.Tensor, aten.add.Scalar)
def add(x: Operand, y: Operand, alpha: Number = 1) -> Array:
    return _with_alpha(_add, x, y, alpha)


@lowers(aten.sub.Tensor, aten.sub.Scalar, aten.subtract.Tensor, aten.subtract.Scalar)
def sub(x: Operand, y: Operand, alpha: Number = 1) -> Array:
    return _with_alpha(_sub, x, y, alpha)


@lowers(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(x: Operand, y: Operand, alpha: Number = 1) -> Array:
    return _with_alpha(_sub, y, x, alpha)


_true_divide = _arithmetic(jnp.true_divide)


def _floor(x: Array, y: Array) -> Array:
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.floor_divide(x, y)
    # Python's floor division, and x / 0 as in IEEE.
    rest = lax.rem(x, y)
    quotient = (x - rest) / y
    quotient = jnp.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
    return jnp.where(y == 0, x / y, jnp.round(quotient))


def _trunc(x: Array, y: Array) -> Array:
    if jnp.issubdtype(x.dtype, jnp.integer):
        return lax.div(x, y)
    return jnp.trunc(x / y)


def _exponent(y: Operand) -> int | None:
    """Return n when `y` is a Python int 2**n; never for LiteRT: it has few kernels for bits."""
    if current().target == "litert":
        return None
    if isinstance(y, int) and not isinstance(y, bool) and y > 0 and y & (y - 1) == 0:
        return y.bit_length() - 1
    return None


def _broadcast(function: Callable[..., Array], x: Array, y: Array) -> Array:
    x, y = jnp.broadcast_arrays(x, y)
    return function(x, y)


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(x: Operand, y: Operand) -> Array:
    dtype, shift = result_type(x, y), _exponent(y)
    if shift is not None and jnp.issubdtype(dtype, jnp.signedinteger):
        # 64-bit division is 15 times a shift on TPU.
        return jnp.right_shift(cast(x, dtype), cast(shift, dtype))
    a, b = promote(x, y)
    return _broadcast(_floor, widen(a), widen(b)).astype(dtype)


@lowers(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.div.Tensor_mode,
    aten.div.Scalar_mode,
    aten.divide.Tensor,
    aten.divide.Scalar,
    aten.divide.Tensor_mode,
    aten.divide.Scalar_mode,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
)
def div(x: Operand, y: Operand, *, rounding_mode: str | None = None) -> Array:
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode == "trunc":
        a, b = promote(x, y)
        return _broadcast(_trunc, widen(a), widen(b)).astype(a.dtype)
    if not jnp.issubdtype(result_type(x, y), jnp.inexact):
        return jnp.true_divide(*floating(x, y))
    return _true_divide(x, y)


@lowers(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(x: Operand, y: Operand) -> Array:
    """The sign of the divisor, as in Python."""
    dtype, shift = result_type(x, y), _exponent(y)
    if shift is not None and jnp.issubdtype(dtype, jnp.signedinteger):
        return jnp.bitwise_and(cast(x, dtype), cast(2**shift - 1, dtype))
    a, b = promote(x, y)
    return jnp.remainder(widen(a), widen(b)).astype(dtype)


@lowers(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(x: Operand, y: Operand) -> Array:
    a, b = promote(x, y)
    return _broadcast(lax.rem, widen(a), widen(b)).astype(a.dtype)


_PROMOTED: dict[Any, Callable[..., Array]] = {
    aten.maximum.default: jnp.maximum,
    aten.minimum.default: jnp.minimum,
    aten.max.other: jnp.maximum,
    aten.min.other: jnp.minimum,
    aten.fmax.default: jnp.fmax,
    aten.fmin.default: jnp.fmin,
    aten.gcd.default: jnp.gcd,
    aten.lcm.default: jnp.lcm,
    aten.nextafter.default: partial(_broadcast, lax.nextafter),
    aten.heaviside.default: lambda x, v: jnp.where(x == 0, v, (x > 0).astype(x.dtype)),
}


def _promoted(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, y: function(*promote(x, y))


for _op, _function in _PROMOTED.items():
    lowers(_op)(_promoted(_function))


def _xlog(log: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    def function(x: Array, y: Array) -> Array:
        product = jnp.where(x == 0, 0, x * log(y))
        return jnp.where(jnp.isnan(y), jnp.nan, product)

    return function


def _logaddexp2(x: Array, y: Array) -> Array:
    return jnp.logaddexp2(x, y)


def logaddexp(x: Array, y: Array) -> Array:
    """Return log(exp(x) + exp(y)), also of complex numbers."""
    if not jnp.iscomplexobj(x):
        return jnp.logaddexp(x, y)
    # torch leaves the imaginary part where it is; JAX wraps it into (-pi, pi].
    first = jnp.real(x) >= jnp.real(y)
    high, low = jnp.where(first, x, y), jnp.where(first, y, x)
    return high + jnp.log1p(jnp.exp(low - high))


_FLOAT: dict[Any, Callable[[Array, Array], Array]] = {
    aten.atan2.default: jnp.arctan2,
    aten.arctan2.default: jnp.arctan2,
    aten.hypot.default: jnp.hypot,
    aten.copysign.Tensor: jnp.copysign,
    aten.copysign.Scalar: jnp.copysign,
    aten.logaddexp.default: logaddexp,
    aten.logaddexp2.default: _logaddexp2,
    aten.ldexp.Tensor: lambda x, y: x * jnp.exp2(y),
}
for _name, _function in (("xlogy", _xlog(jnp.log)), ("xlog1py", _xlog(jnp.log1p))):
    _packet = getattr(aten, f"special_{_name}")
    _FLOAT |= {_packet.default: _function, _packet.other_scalar: _function}
    _FLOAT[_packet.self_scalar] = _function
_FLOAT |= {
    aten.xlogy.Tensor: _xlog(jnp.log),
    aten.xlogy.Scalar_Other: _xlog(jnp.log),
    aten.xlogy.Scalar_Self: _xlog(jnp.log),
}
for _op, _function in _FLOAT.items():
    lowers(_op)(in_opmath(_function))


_POWERS: dict[float, Callable[[Array], Array]] = {
    0.5: jnp.sqrt,
    -0.5: lax.rsqrt,
    -1: lambda x: 1 / x,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -2: lambda x: 1 / (x * x),
}


@lowers(
    aten.pow.Tensor_Tensor,
    aten.pow.Tensor_Scalar,
    aten.pow.Scalar,
)
def power(x: Operand, y: Operand) -> Array:
    dtype = result_type(x, y)
    a = widen(cast(x, dtype))
    if isinstance(y, int | float) and y in _POWERS:
        return _POWERS[y](a).astype(dtype)
    if isinstance(y, int | float) and float(y).is_integer() and 0 <= y <= 16:
        return lax.integer_pow(a, int(y)).astype(dtype)
    b = cast(y, a.dtype)
    if jnp.issubdtype(a.dtype, jnp.integer):
        return jnp.where(b < 0, _inverse_power(a, b), jnp.power(a, jnp.maximum(b, 0)))
    return jnp.power(a, b).astype(dtype)


def _inverse_power(x: Array, y: Array) -> Array:
    """Integer x ** y for negative y: 0 but for 1 and -1."""
    alternating = jnp.where(y % 2 == 0, 1, -1)
    value = jnp.where(x == 1, 1, jnp.where(x == -1, alternating, 0))
    return value.astype(x.dtype)


@lowers(
    aten.float_power.Tensor_Tensor,
    aten.float_power.Tensor_Scalar,
    aten.float_power.Scalar,
)
def float_power(x: Operand, y: Operand) -> Array:
    wide = np.dtype(np.complex128 if _any_complex(x, y) else np.float64)
    return jnp.power(cast(x, wide), cast(y, wide))


def _any_complex(*xs: Operand) -> bool:
    return any(jnp.iscomplexobj(x) for x in xs)
