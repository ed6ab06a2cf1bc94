"""Division of 64-bit integers, which LiteRT lacks."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array


def divided(x: Array, y: Array) -> Array:
    """Divide in 64 bits: float32 estimates of what is left, to the last unit."""
    bound = np.float32(2.0**62)
    total, rest = jnp.zeros_like(x), x
    for _ in range(4):  # each leaves 2**-21 of the rest, or less than a divisor
        ratio = rest.astype(jnp.float32) / y.astype(jnp.float32)
        step = jnp.minimum(jnp.maximum(ratio, -bound), bound).astype(jnp.int64)
        total, rest = total + step, rest - step * y
    one = jnp.where((rest < 0) == (y < 0), 1, -1)
    over = magnitude(rest) >= magnitude(y)
    total, rest = (
        jnp.where(over, total + one, total),
        jnp.where(over, rest - one * y, rest),
    )
    past = (rest != 0) & ((rest < 0) != (x < 0))
    return jnp.where(past, total - jnp.where((x < 0) == (y < 0), 1, -1), total)


def magnitude(x: Array, **_: Any) -> Array:
    """Return the absolute value; of the least integer, itself."""
    return jnp.where(x < 0, -x, x)
