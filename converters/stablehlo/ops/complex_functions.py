"""Functions of complex numbers where XLA's differ from torch's: cuts, zeros, small parts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
from jax import Array, lax

Function: TypeAlias = Callable[[Array], Array]
Part: TypeAlias = Callable[[Array], Array]


def _signed(
    function: Function, real: Part | None = None, imag: Part | None = None
) -> Function:
    """Return the function with the signs of C99, which tell the sides of a cut apart by -0.0.

    Args:
        function: right but for the signs, also of real numbers, which it takes as they are.
        real: what of the operand has the sign of the result's real part; None leaves it.
        imag: the same for the imaginary part.
    """

    def signed(x: Array) -> Array:
        y = function(x)
        if not jnp.iscomplexobj(x):
            return y
        re, im = jnp.real(y), jnp.imag(y)
        re = re if real is None else jnp.copysign(re, real(x))
        return lax.complex(re, im if imag is None else jnp.copysign(im, imag(x)))

    return signed


sqrt = _signed(jnp.sqrt, imag=jnp.imag)
acos = _signed(jnp.arccos, imag=lambda x: -jnp.imag(x))
acosh = _signed(jnp.arccosh, imag=jnp.imag)
asin = _signed(jnp.arcsin, jnp.real, jnp.imag)
asinh = _signed(jnp.arcsinh, jnp.real, jnp.imag)
atan = _signed(jnp.arctan, jnp.real, jnp.imag)
atanh = _signed(jnp.arctanh, jnp.real, jnp.imag)


def sinh(x: Array) -> Array:
    """From its parts: a difference of exponentials would lose a small one."""
    if not jnp.iscomplexobj(x):
        return jnp.sinh(x)
    re, im = jnp.real(x), jnp.imag(x)
    return lax.complex(jnp.sinh(re) * jnp.cos(im), jnp.cosh(re) * jnp.sin(im))


def cosh(x: Array) -> Array:
    if not jnp.iscomplexobj(x):
        return jnp.cosh(x)
    re, im = jnp.real(x), jnp.imag(x)
    return lax.complex(jnp.cosh(re) * jnp.cos(im), jnp.sinh(re) * jnp.sin(im))


def exp2(x: Array) -> Array:
    """From its parts: a product of complex numbers makes NaN of an infinity."""
    if not jnp.iscomplexobj(x):
        return jnp.exp2(x)
    scale = math.log(2)
    return jnp.exp(lax.complex(jnp.real(x) * scale, jnp.imag(x) * scale))


def quotient(x: Array, y: Array) -> Array:
    """Return x / y; of a complex zero it is what each part gives, where XLA gives NaN."""
    if not jnp.iscomplexobj(y):
        return jnp.true_divide(x, y)
    x, y = jnp.broadcast_arrays(x, y)
    none = jnp.zeros_like(jnp.real(y))
    parts = lax.complex(jnp.real(x) / none, jnp.imag(x) / none)
    return jnp.where(y == 0, parts, x / y)


def reciprocal(x: Array) -> Array:
    return quotient(jnp.ones_like(x), x)


def rsqrt(x: Array) -> Array:
    return reciprocal(sqrt(x)) if jnp.iscomplexobj(x) else lax.rsqrt(x)


def power(x: Array, y: Array) -> Array:
    """Return x ** y; a complex zero gives zero where the exponent's real part is positive."""
    if not jnp.iscomplexobj(x):
        return jnp.power(x, y)
    vanishes = (x == 0) & (jnp.real(y) > 0)
    return jnp.where(vanishes, jnp.zeros((), x.dtype), jnp.power(x, y))


def direction(x: Array) -> Array:
    """Return x / |x|, and 0 of 0: part by part, so that an infinite part spares the other."""
    size = jnp.abs(x)
    some = jnp.where(size == 0, 1, size).astype(size.dtype)
    parts = lax.complex(jnp.real(x) / some, jnp.imag(x) / some)
    return jnp.where(size == 0, jnp.zeros((), x.dtype), parts)
