"""The regularized incomplete gamma functions, where XLA's series and fraction are not enough.

P(a, x) + Q(a, x) = 1; torch calls them igamma and igammac.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import jax.numpy as jnp
import numpy as np
import scipy.special
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import floating, replaced, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

# Of Temme's expansion: powers of 1 / a, and of eta; for a > 20 and |x - a| < 0.3 a they
# leave an error of 1e-13.
POWERS = 9
ETA_POWERS = 14
SMALL_A = 0.5


def _horner(z: Array, coefficients: list[float]) -> Array:
    """Sum coefficients[k] z^k."""
    total = jnp.full_like(z, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * z + c
    return total


@cache
def _temme() -> list[list[float]]:
    """Return d[k][n] of c_k(eta) = sum d[k][n] eta^n, DLMF 8.12.12."""
    size = ETA_POWERS + 2 * POWERS
    alpha = [0.0, 1.0]
    for n in range(2, size + 2):
        products = sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))
        alpha.append((alpha[n - 1] - products) / (n + 1))
    table = [[-1 / 3] + [(n + 2) * alpha[n + 2] for n in range(1, size)]]
    for k in range(1, POWERS):
        odds = math.prod(range(1, 2 * k + 2, 2))
        stirling = (-1) ** k * odds * alpha[2 * k + 1]
        last = table[-1]
        table.append(
            [
                stirling * table[0][n] + (n + 2) * last[n + 2]
                for n in range(size - 2 * k)
            ]
        )
    return [row[:ETA_POWERS] for row in table]


def _log1p_less(s: Array) -> Array:
    """Return log(1 + s) - s for |s| < 0.3, by the series of 2 artanh(s / (2 + s))."""
    r = s / (2 + s)
    rest = _horner(r * r, [1 / k for k in range(3, 25, 2)])
    return 2 * r * r * r * rest - s * r


def _uniform(a: Array, x: Array, sign: int) -> Array:
    """Return P (sign -1) or Q (sign 1) for a large `a` near x: Temme, DLMF 8.12.3."""
    relative = (x - a) / a
    half_square = jnp.maximum(-_log1p_less(relative), 0)
    eta = jnp.copysign(jnp.sqrt(2 * half_square), relative)
    total = jnp.zeros_like(a)
    for row in reversed(_temme()):
        total = total / a + _horner(eta, row)
    rest = jnp.exp(-a * half_square) * total / jnp.sqrt(2 * math.pi * a)
    return lax.erfc(sign * eta * jnp.sqrt(a / 2)) / 2 + sign * rest


def _near_zero(a: Array, x: Array) -> Array:
    """Return Q for a <= 0.5 and x <= 1, where 1 - P would have lost its digits."""
    terms = [(-1) ** k * scipy.special.zetac(k).item() / k for k in range(2, 27)]
    log_gamma = a * _horner(a, [1 - np.euler_gamma, *terms]) - jnp.log1p(a)
    power = a * jnp.log(x) - log_gamma
    series = sum(
        ((-x) ** n / (math.factorial(n) * (a + n)) for n in range(1, 19)),
        jnp.zeros_like(x),
    )
    return -jnp.expm1(power) - a * jnp.exp(power) * series


def _is_uniform(a: Array, x: Array) -> Array:
    return (a > 20) & (jnp.abs(x - a) < 0.3 * a)


def lower(a: Array, x: Array) -> Array:
    uniform = _is_uniform(a, x)
    plain = lax.igamma(replaced(a, uniform, 1), replaced(x, uniform, 1))
    return jnp.where(uniform, _uniform(a, x, -1), plain)


def upper(a: Array, x: Array) -> Array:
    uniform = _is_uniform(a, x)
    small = (a <= SMALL_A) & (x <= 1)
    other = uniform | small
    plain = lax.igammac(replaced(a, other, 1), replaced(x, other, 1))
    value = jnp.where(uniform, _uniform(a, x, 1), plain)
    return jnp.where(small, _near_zero(a, x), value)


def _incomplete(
    function: Callable[[Array, Array], Array], at_zero: float
) -> Callable[[Array, Array], Array]:
    """Return the rule of a regularized incomplete gamma function, `at_zero` where x = 0."""

    def rule(a: Array, x: Array) -> Array:
        a, x = floating(a, x)
        dtype = x.dtype
        a, x = jnp.broadcast_arrays(widen(a), widen(x))
        inside = (a > 0) & (x > 0) & jnp.isfinite(a + x)
        value = function(replaced(a, ~inside, 1), replaced(x, ~inside, 1))
        both = (a == 0) & ~(x > 0) | jnp.isinf(a) & jnp.isinf(x)
        edges = [  # in torch's order: of NaN and an edge it takes the edge
            ((a < 0) | (x < 0) | both, jnp.nan),
            (a == 0, 1 - at_zero),
            ((x == 0) | jnp.isinf(a), at_zero),
            (jnp.isinf(x), 1 - at_zero),
            (jnp.isnan(a + x), jnp.nan),
        ]
        for edge, at_edge in reversed(edges):
            value = replaced(value, edge, at_edge)
        return value.astype(dtype)

    return rule


lowers(aten.igamma.default, aten.special_gammainc.default)(_incomplete(lower, 0.0))
lowers(aten.igammac.default, aten.special_gammaincc.default)(_incomplete(upper, 1.0))
