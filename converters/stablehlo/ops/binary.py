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
    rounded,
    widen,
)
from tpu_export.converters.stablehlo.ops.complex_functions import quotient
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
_HALF = (DTYPES[torch.float16], DTYPES[torch.bfloat16])


def _exact(y: Operand, dtype: np.dtype[Any]) -> bool:
    """Whether an operand is not a scalar, or one that survives the rounding to a half type."""
    if isinstance(y, int | float):
        return y != y or float(dtype.type(y)) == y
    return bool(getattr(y, "ndim", 0)) or getattr(y, "dtype", None) == dtype


def _factors(x: Operand, y: Operand) -> tuple[Array, Array]:
    """Promote; a scalar meets half types in float32.

    torch's kernels of products and quotients do so for the second operand, those of sums and
    differences for none.
    """
    dtype = result_type(x, y)
    if dtype not in _HALF or _exact(y, dtype):
        return cast(x, dtype), cast(y, dtype)
    return widen(cast(x, dtype)), cast(y, np.dtype(np.float32))


def _scaled(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda x, y: function(*_factors(x, y)).astype(result_type(x, y))


def _add(x: Operand, y: Operand) -> Array:
    return jnp.add(*promote(x, y))


def _sub(x: Operand, y: Operand) -> Array:
    return jnp.subtract(*promote(x, y))


mul = _scaled(jnp.multiply)
lowers(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)(
    mul
)


def _with_alpha(
    function: Callable[[Operand, Operand], Array], x: Operand, y: Operand, alpha: Number
) -> Array:
    if isinstance(alpha, int | float) and alpha == 1:
        return function(x, y)
    dtype = result_type(x, y)
    y = widen(cast(y, dtype)) * widen(cast(alpha, dtype))
    return function(widen(cast(x, dtype)), y).astype(dtype)


@lowers(aten.add.Tensor, aten.add.Scalar)
def add(x: Operand, y: Operand, alpha: Number = 1) -> Array:
    return _with_alpha(_add, x, y, alpha)


@lowers(aten.sub.Tensor, aten.sub.Scalar, aten.subtract.Tensor, aten.subtract.Scalar)
def sub(x: Operand, y: Operand, alpha: Number = 1) -> Array:
    return _with_alpha(_sub, x, y, alpha)


@lowers(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(x: Operand, y: Operand, alpha: Number = 1) -> Array:
    return _with_alpha(_sub, y, x, alpha)


# XLA multiplies by the inverse of a constant, which a half type would round twice.
_true_divide = _scaled(lambda x, y: quotient(widen(x), widen(y)))


def _floor(x: Array, y: Array) -> Array:
    if jnp.issubdtype(x.dtype, jnp.integer):
        return jnp.floor_divide(x, y)
    # Python's floor division, and x / 0 as in IEEE. A zero has the sign of the quotient.
    rest, exact = lax.rem(x, y), x / y
    quotient = (x - rest) / y
    quotient = jnp.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)
    whole = jnp.where(quotient == 0, exact * 0, jnp.round(quotient))
    return jnp.where(y == 0, exact, whole)


def _trunc(x: Array, y: Array, dtype: np.dtype[Any]) -> Array:
    if jnp.issubdtype(x.dtype, jnp.integer):
        return lax.div(x, y)
    return jnp.trunc(rounded(x / y, dtype))


def _exponent(y: Operand, dtype: np.dtype[Any]) -> int | None:
    """Return n when `y` is a Python int 2**n that the signed dtype holds.

    None for LiteRT too: it has few kernels for bits.
    """
    if not isinstance(y, int) or isinstance(y, bool) or dtype.kind != "i":
        return None
    if current().target == "litert":
        return None
    if 0 < y <= np.iinfo(dtype).max and y & (y - 1) == 0:
        return y.bit_length() - 1
    return None


def _broadcast(function: Callable[..., Array], x: Array, y: Array) -> Array:
    x, y = jnp.broadcast_arrays(x, y)
    return function(x, y)


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(x: Operand, y: Operand) -> Array:
    dtype = result_type(x, y)
    shift = _exponent(y, dtype)
    if shift is not None:
        # 64-bit division is 15 times a shift on TPU.
        return jnp.right_shift(cast(x, dtype), cast(shift, dtype))
    a, b = _factors(x, y)
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
        a, b = _factors(x, y)  # of two tensors the quotient is rounded first
        dtype = result_type(x, y)
        cut = partial(_trunc, dtype=a.dtype)
        return _broadcast(cut, widen(a), widen(b)).astype(dtype)
    if not jnp.issubdtype(result_type(x, y), jnp.inexact):
        return jnp.true_divide(*floating(x, y))
    return _true_divide(x, y)


@lowers(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(x: Operand, y: Operand) -> Array:
    """The sign of the divisor, as in Python."""
    dtype = result_type(x, y)
    shift = _exponent(y, dtype)
    if shift is not None:
        return jnp.bitwise_and(cast(x, dtype), cast(2**shift - 1, dtype))
    a, b = promote(x, y)
    return jnp.remainder(widen(a), widen(b)).astype(dtype)


@lowers(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(x: Operand, y: Operand) -> Array:
    a, b = promote(x, y)
    return _broadcast(lax.rem, widen(a), widen(b)).astype(a.dtype)


def _gcd(x: Array, y: Array) -> Array:
    """Run Euclid's loop as torch's CPU does; JAX's never ends at the lowest integer."""

    def step(pair: tuple[Array, ...]) -> tuple[Array, ...]:
        a, b = pair
        rest = lax.rem(b, jnp.where(a == 0, 1, a))
        return jnp.where(a == 0, a, rest), jnp.where(a == 0, b, a)

    pair = jnp.broadcast_arrays(jnp.abs(x), jnp.abs(y))
    found: Array = lax.while_loop(lambda p: jnp.any(p[0] != 0), step, tuple(pair))[1]
    return found


def _lcm(x: Array, y: Array) -> Array:
    """Of narrow integers the multiple is found in 32 bits, and wraps, as in C."""
    dtype, divisor = x.dtype, _gcd(x, y)
    if dtype.itemsize < np.dtype(np.int32).itemsize:
        x, y, divisor = (v.astype(jnp.int32) for v in (x, y, divisor))
    part = lax.div(*jnp.broadcast_arrays(x, jnp.where(divisor == 0, 1, divisor)))
    return jnp.abs(part * y).astype(dtype)


_PROMOTED: dict[Any, Callable[..., Array]] = {
    aten.maximum.default: jnp.maximum,
    aten.minimum.default: jnp.minimum,
    aten.max.other: jnp.maximum,
    aten.min.other: jnp.minimum,
    aten.fmax.default: jnp.fmax,
    aten.fmin.default: jnp.fmin,
    aten.gcd.default: _gcd,
    aten.lcm.default: _lcm,
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
