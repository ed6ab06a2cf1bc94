"""Special functions whose domains differ between XLA and torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import Operand, floating, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _hurwitz(s: Array, q: Array) -> Array:
    """Return the sum over k >= 0 of (q + k)^-s, also where q < 0, which XLA leaves out.

    For a whole s the sum over every whole k is the same at q and one nearest to zero, and
    its terms below -q are those of zeta(s, 1 - q), up to their sign. Poles are infinite.
    """
    pole = (q <= 0) & (q == jnp.floor(q))
    below = (q < 0) & ~pole
    left = jnp.where(below, jnp.ceil(q) - q, 0.5)
    sign = jnp.where(s % 2 == 0, 1, -1).astype(q.dtype)
    value = lax.zeta(s, jnp.where(below, 1 - left, q))
    # In this order: at halves the first two are equal, and of opposite sign for an odd s.
    whole = value + sign * lax.zeta(s, left)
    mirrored = whole - sign * lax.zeta(s, jnp.where(below, 1 - q, 1))
    return jnp.where(pole, jnp.inf, jnp.where(below, mirrored, value))


@lowers(
    aten.special_zeta.default,
    aten.special_zeta.other_scalar,
    aten.special_zeta.self_scalar,
)
def zeta(s: Operand, q: Operand) -> Array:
    """Hurwitz zeta; NaN for a negative q when s is not whole, as Cephes has it."""
    s, q = floating(s, q)
    s, wide = jnp.broadcast_arrays(widen(s), widen(q))
    value = _hurwitz(s, wide)
    value = jnp.where(
        (s != jnp.floor(s)) & (wide < 0) & ~jnp.isinf(value), jnp.nan, value
    )
    value = jnp.where(s == 1, jnp.inf, jnp.where(s < 1, jnp.nan, value))
    return value.astype(q.dtype)


def digamma(x: Array) -> Array:
    """Return the derivative of lgamma; at a zero an infinity of the other sign."""
    return jnp.where(x == 0, jnp.copysign(jnp.inf, -x), lax.digamma(x))


@lowers(aten.polygamma.default, aten.special_polygamma.default)
def polygamma(n: int, x: Array) -> Array:
    """(-1)^(n+1) n! zeta(n + 1, x); n = 0 is digamma."""
    (x,) = floating(x)
    wide = widen(x)
    if n == 0:
        return digamma(wide).astype(x.dtype)
    if n == 1:  # by reflection, so that poles are what torch's sine makes of them
        mirrored = wide < 0.5
        value = lax.zeta(jnp.full_like(wide, 2), jnp.where(mirrored, 1 - wide, wide))
        value = jnp.where(jnp.isinf(wide), 0, value)
        sine = jnp.pi / jnp.sin(jnp.pi * wide)
        return jnp.where(mirrored, sine * sine - value, value).astype(x.dtype)
    factor = np.exp(math.lgamma(n + 1))
    value = _hurwitz(jnp.full_like(wide, n + 1), wide)
    return (jnp.asarray((-1) ** (n + 1) * factor, wide.dtype) * value).astype(x.dtype)


def _incomplete(
    function: Callable[..., Any], at_zero: float
) -> Callable[[Array, Array], Array]:
    """Return the rule of a regularized incomplete gamma function, `at_zero` where x = 0."""

    def rule(a: Array, x: Array) -> Array:
        a, x = floating(a, x)
        wide_a, wide_x = jnp.broadcast_arrays(widen(a), widen(x))
        inside = (wide_a > 0) & (wide_x > 0) & jnp.isfinite(wide_a + wide_x)
        value = function(jnp.where(inside, wide_a, 1), jnp.where(inside, wide_x, 1))
        both = (wide_a == 0) & ~(wide_x > 0) | jnp.isinf(wide_a) & jnp.isinf(wide_x)
        edges = [  # in torch's order: of NaN and an edge it takes the edge
            ((wide_a < 0) | (wide_x < 0) | both, jnp.nan),
            (wide_a == 0, 1 - at_zero),
            ((wide_x == 0) | jnp.isinf(wide_a), at_zero),
            (jnp.isinf(wide_x), 1 - at_zero),
            (jnp.isnan(wide_a + wide_x), jnp.nan),
        ]
        for edge, at_edge in reversed(edges):
            value = jnp.where(edge, at_edge, value)
        return jnp.asarray(value).astype(x.dtype)

    return rule


lowers(aten.igamma.default, aten.special_gammainc.default)(
    _incomplete(jax.scipy.special.gammainc, 0.0)
)
lowers(aten.igammac.default, aten.special_gammaincc.default)(
    _incomplete(jax.scipy.special.gammaincc, 1.0)
)
