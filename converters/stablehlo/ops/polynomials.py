"""Orthogonal polynomials of torch.special, by their three-term recurrences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import (
    Number,
    Operand,
    floating,
    replaced,
    widen,
)
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

# Of (x, n): where the recurrence is not to be run, and the values there.
Known: TypeAlias = tuple[Array, Array]

UNROLLED = 32  # a larger n that is a number runs in a loop
# Above it Chebyshev's polynomials are sines and cosines where |x| < 1, about as in torch.
TRIGONOMETRIC = 8
# Above it torch gives NaN, by the dtype's bytes.
HERMITE_LIMITS = {4: 128, 8: 512}


@dataclass(frozen=True)
class Family:
    """P_0 = 1, P_1 = first(x), P_k = step(k, x, P_{k-1}, P_{k-2}).

    known: of (x, n) with a whole n >= 0 in the dtype of x.
    """

    first: Callable[[Array], Array]
    step: Callable[[Array, Array, Array, Array], Array]
    known: Callable[[Array, Array], Known]


def _alternating(n: Array) -> Array:
    return 1 - 2 * (n % 2)


def _ratio(over: Array, under: Array, limit: Array) -> Array:
    zero = under == 0
    return jnp.where(zero, limit, over / replaced(under, zero, 1))


def _t(angle: Array, n: Array) -> Array:
    return jnp.cos(n * angle)


def _u(angle: Array, n: Array) -> Array:
    return _ratio(jnp.sin((n + 1) * angle), jnp.sin(angle), n + 1)


def _v(angle: Array, n: Array) -> Array:
    return jnp.cos((n + 0.5) * angle) / jnp.cos(angle / 2)


def _w(angle: Array, n: Array) -> Array:
    return _ratio(jnp.sin((n + 0.5) * angle), jnp.sin(angle / 2), n + n + 1)


def _chebyshev(
    first: Callable[[Array], Array],
    closed: Callable[[Array, Array], Array],
    mirrored: Callable[[Array, Array], Array],
) -> Family:
    """Return a family where P_n(-x) = (-1)^n M_n(x), P and M closed in the angle."""

    def known(x: Array, n: Array) -> Known:
        size = jnp.minimum(jnp.abs(x), 1)
        # Not acos, which has lost half of the digits near 1.
        angle = 2 * jnp.arctan2(jnp.sqrt(1 - size), jnp.sqrt(1 + size))
        negative = _alternating(n) * mirrored(angle, n)
        value = jnp.where(x < 0, negative, closed(angle, n))
        size = jnp.abs(x)
        return (size == 1) | ((size < 1) & (n > TRIGONOMETRIC)), value

    return Family(first, lambda _, x, q, p: (x + x) * q - p, known)


def _at_one(x: Array, n: Array) -> Known:
    return jnp.abs(x) == 1, replaced(_alternating(n), x > 0, 1)


def _beyond_limit(x: Array, n: Array) -> Known:
    return n > HERMITE_LIMITS[x.dtype.itemsize], jnp.full_like(x, jnp.nan)


_CHEBYSHEV = {
    "t": _chebyshev(lambda x: x, _t, _t),
    "u": _chebyshev(lambda x: x + x, _u, _u),
    "v": _chebyshev(lambda x: x + x - 1, _v, _w),
    "w": _chebyshev(lambda x: x + x + 1, _w, _v),
}
_FAMILIES = {
    f"chebyshev_polynomial_{kind}": family for kind, family in _CHEBYSHEV.items()
} | {
    "hermite_polynomial_h": Family(
        lambda x: x + x,
        lambda k, x, q, p: (x + x) * q - (k + k - 2) * p,
        _beyond_limit,
    ),
    "hermite_polynomial_he": Family(
        lambda x: x, lambda k, x, q, p: x * q - (k - 1) * p, _beyond_limit
    ),
    "laguerre_polynomial_l": Family(
        lambda x: 1 - x,
        lambda k, x, q, p: ((k + k - 2 + (1 - x)) * q - (k - 1) * p) / k,
        lambda x, _: (x == 0, jnp.ones_like(x)),
    ),
    "legendre_polynomial_p": Family(
        lambda x: x,
        lambda k, x, q, p: ((k + k - 1) * x * q - (k - 1) * p) / k,
        _at_one,
    ),
}


def _unrolled(family: Family, x: Array, n: int) -> Array:
    p, q = jnp.ones_like(x), family.first(x)
    for k in range(2, n + 1):
        p, q = q, family.step(jnp.asarray(k, x.dtype), x, q, p)
    return q if n else jnp.ones_like(x)


def _looped(family: Family, x: Array, n: Array) -> Array:
    """Return P_n of each element; the loop ends with the largest n, or where all are NaN."""
    n = jnp.minimum(n, np.iinfo(np.int32).max // 2).astype(jnp.int32)

    def running(k: Array, q: Array) -> Array:
        return (k <= n) & ~jnp.isnan(q)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, p, q = state
        r = family.step(k.astype(x.dtype), x, q, p)
        active = running(k, q)
        return k + 1, jnp.where(active, q, p), jnp.where(active, r, q)

    start = (jnp.int32(2), jnp.ones_like(x), family.first(x))
    _, _, value = lax.while_loop(
        lambda state: jnp.any(running(state[0], state[2])), step, start
    )
    return replaced(value, n == 0, 1)


def _of_number(family: Family, x: Array, n: Number) -> Array:
    degree = int(n.real)
    value = _unrolled(family, x, degree)
    if degree <= TRIGONOMETRIC:
        return value
    known, at_known = family.known(x, jnp.full_like(x, degree))
    return jnp.where(known, at_known, value)


def _of_array(family: Family, x: Array, n: Array) -> Array:
    n = jnp.trunc(n)
    # What no int64 holds is cast to the least of them by torch, so it counts as negative.
    valid = (n >= 0) & (n < 2.0**63)
    n = replaced(n, ~valid, 0)
    known, at_known = family.known(x, n)
    value = _looped(family, x, replaced(n, known, 0))
    value = jnp.where(known & (n > 0), at_known, value)
    return replaced(value, ~valid, 0)


def _polynomial(family: Family, *, shifted: bool) -> Callable[..., Array]:
    def rule(x: Operand, n: Operand) -> Array:
        wide_x, wide_n = floating(x, n)
        dtype = wide_x.dtype
        wide = widen(wide_x)
        wide = wide + wide - 1 if shifted else wide
        if not isinstance(n, Array) and 0 <= n.real <= UNROLLED:
            return _of_number(family, wide, n).astype(dtype)
        wide, wide_n = jnp.broadcast_arrays(wide, widen(wide_n))
        return _of_array(family, wide, wide_n).astype(dtype)

    return rule


def _register() -> None:
    rules = {name: _polynomial(f, shifted=False) for name, f in _FAMILIES.items()} | {
        f"shifted_chebyshev_polynomial_{kind}": _polynomial(family, shifted=True)
        for kind, family in _CHEBYSHEV.items()
    }
    for name, rule in rules.items():
        op = getattr(aten, f"special_{name}")
        lowers(op.default, op.x_scalar, op.n_scalar)(rule)


_register()
