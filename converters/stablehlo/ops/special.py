"""Special functions whose domains differ between XLA and torch."""

from __future__ import annotations

import math

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import (
    Operand,
    floating,
    replaced,
    widen,
)
from tpu_export.converters.stablehlo.ops.bessel import erfcx
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _hurwitz(s: Array, q: Array) -> Array:
    """Return the sum over k >= 0 of (q + k)^-s, also where q < 0, which XLA leaves out.

    For a whole s the sum over every whole k is the same at q and one nearest to zero, and
    its terms below -q are those of zeta(s, 1 - q), up to their sign. Poles are infinite.
    """
    pole = (q <= 0) & (q == jnp.floor(q))
    below = (q < 0) & ~pole
    left = replaced(jnp.ceil(q) - q, ~below, 0.5)
    sign = 1 - 2 * (s % 2)
    value = lax.zeta(s, jnp.where(below, 1 - left, q))
    # In this order: at halves the first two are equal, and of opposite sign for an odd s.
    whole = value + sign * lax.zeta(s, left)
    mirrored = whole - sign * lax.zeta(s, replaced(1 - q, ~below, 1))
    return replaced(jnp.where(below, mirrored, value), pole, jnp.inf)


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
    undefined = (s != jnp.floor(s)) & (wide < 0) & ~jnp.isinf(value)
    value = replaced(value, undefined | (s < 1), jnp.nan)
    return replaced(value, s == 1, jnp.inf).astype(q.dtype)


def digamma(x: Array) -> Array:
    """Return the derivative of lgamma; at a zero an infinity of the other sign."""
    return jnp.where(x == 0, -1 / x, lax.digamma(x))


def entr(x: Array) -> Array:
    """Return -x log(x): 0 of 0, -inf of negative numbers."""
    inside = -x * jnp.log(jnp.where(x > 0, x, 1))
    return jnp.where(x > 0, inside, jnp.where(x < 0, -jnp.inf, jnp.abs(x)))


def log_ndtr(x: Array) -> Array:
    """Return the logarithm of the normal distribution, exact in both tails."""
    scaled = x * math.sqrt(0.5)
    left = jnp.log(erfcx(-jnp.minimum(scaled, 0)) / 2) - scaled * scaled
    return jnp.where(x < -1, left, jnp.log1p(-lax.erfc(scaled) / 2))


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
        value = replaced(value, jnp.isinf(wide), 0)
        sine = jnp.pi / jnp.sin(jnp.pi * wide)
        return jnp.where(mirrored, sine * sine - value, value).astype(x.dtype)
    # In the dtype, whose exp() is infinite where the factorial does not fit, as in torch.
    factor = jnp.exp(jnp.asarray(math.lgamma(n + 1), wide.dtype))
    value = _hurwitz(jnp.full_like(wide, n + 1), wide)
    return ((1 if n % 2 else -1) * factor * value).astype(x.dtype)
