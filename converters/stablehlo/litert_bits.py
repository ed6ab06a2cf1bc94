"""Bits of integers in arithmetic: LiteRT has exclusive or and shifts of 32 bits only."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tpu_export.converters.stablehlo.litert_division import divided

Words = Callable[[Array, Array], Array]
_HALF = 2**16
_WORD = 2**32


def _both(x: Array, y: Array) -> Array:
    """Return x & y of int32, by halves: x + y == (x ^ y) + 2 * (x & y)."""
    high = _shared(x >> 16, y >> 16)
    low = _shared(x - (x >> 16) * _HALF, y - (y >> 16) * _HALF)
    return high * _HALF + low


def _shared(x: Array, y: Array) -> Array:
    return (x + y - (x ^ y)) >> 1


def _either(x: Array, y: Array) -> Array:
    return _both(x, y) + (x ^ y)


def _exclusive(x: Array, y: Array) -> Array:
    return lax.bitwise_xor(x, y)


def _split(x: Array) -> tuple[Array, Array]:
    """Return the high and the low word of int64, as int32."""
    high = shift_right(x, jnp.full_like(x, 32))
    low = x - high * _WORD  # 0 ... 2**32 - 1
    signed = jnp.where(low >= _WORD // 2, low - _WORD, low)
    return high.astype(jnp.int32), signed.astype(jnp.int32)


def _by_words(operation: Words) -> Words:
    def form(x: Array, y: Array) -> Array:
        if x.dtype != jnp.int64:
            wide = operation(x.astype(jnp.int32), y.astype(jnp.int32))
            return wide.astype(x.dtype)
        high, low = (
            operation(a, b).astype(jnp.int64)
            for a, b in zip(_split(x), _split(y), strict=True)
        )
        return high * _WORD + jnp.where(low < 0, low + _WORD, low)

    return form


bits_and, bits_or, bits_xor = map(_by_words, (_both, _either, _exclusive))


def bits_not(x: Array) -> Array:
    """Return -1 - x, which is ~x."""
    return jnp.asarray(-1, x.dtype) - x


def _power(count: Array) -> Array:
    """Return 2**count where that is positive in its dtype; 1 for other counts."""
    power = jnp.ones_like(count)
    for n in range(1, _width(count) - 1):
        power = jnp.where(count == n, np.asarray(2**n, count.dtype), power)
    return power


def _width(x: Array) -> int:
    return 8 * x.dtype.itemsize


def shift_left(x: Array, count: Array) -> Array:
    """Multiply; counts beyond the width give 0."""
    last = _width(x) - 1
    highest = x * np.asarray(-(2**last), x.dtype)
    inside = (count >= 0) & (count < last)
    return jnp.where(
        inside, x * _power(count), jnp.where(count == last, highest, 0)
    ).astype(x.dtype)


def shift_right(x: Array, count: Array) -> Array:
    """Shift with the sign; counts beyond the width give the sign."""
    last = _width(x) - 1
    inside = (count >= 0) & (count < last)
    if x.dtype == jnp.int32:
        return x >> jnp.where(inside, count, last)
    power = _power(count)
    quotient = divided(x, power)
    floor = quotient - (x - quotient * power < 0).astype(x.dtype)
    return jnp.where(inside, floor, jnp.where(x < 0, np.int64(-1), 0))
