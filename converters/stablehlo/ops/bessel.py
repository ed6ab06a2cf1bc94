"""Bessel functions, Airy's, and erfc scaled, in the same pieces as torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from itertools import dropwhile
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo import cephes
from tpu_export.converters.stablehlo.operands import in_opmath, replaced
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

# Squares of the first two zeros of J0 and of J1.
ZEROS = (
    (5.78318596294678452118, 30.4712623436620863991),
    (14.6819706421238932572, 49.2184563216946036703),
)


def _polynomial(z: Array, coefficients: cephes.Coefficients) -> Any:
    first, *rest = coefficients
    return reduce(lambda total, c: total * z + c, rest, jnp.full_like(z, first))


def _rational(z: Array, table: cephes.Rational) -> Array:
    over, under = table
    return jnp.asarray(_polynomial(z, over) / _polynomial(z, under))


def _chebyshev(z: Array, coefficients: cephes.Coefficients) -> Array:
    """Sum Chebyshev's series by Clenshaw's recurrence, without what the dtype can't hold."""
    least = float(np.finfo(z.dtype).eps) / 8
    p = q = a = jnp.zeros_like(z)
    for c in dropwhile(lambda c: abs(c) < least, coefficients):
        p, q, a = q, a, z * a - q + c
    return (a - p) / 2


def _hankel(x: Array, order: int) -> tuple[Array, Array]:
    """Return J and Y for x > 5."""
    p_table, q_table = ((cephes.P0, cephes.Q0), (cephes.P1, cephes.Q1))[order]
    w = 5 / x
    p, q = _rational(w * w, p_table), w * _rational(w * w, q_table)
    angle = x - (order / 2 + 0.25) * math.pi
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    scale = math.sqrt(2 / math.pi) / jnp.sqrt(x)
    return (p * cosine - q * sine) * scale, (p * sine + q * cosine) * scale


def _first_kind(x: Array, order: int) -> Array:
    """Return J for x >= 0."""
    z = x * x
    low, high = ZEROS[order]
    factor = (z - low) * (z - high)
    if order == 0:
        near = factor * _rational(z, cephes.J0_NEAR)
        near = jnp.where(x < 1e-5, 1 - z / 4, near)
    else:
        near = _rational(z, cephes.J1_NEAR) * x * factor
    return jnp.where(x <= 5, near, _hankel(x, order)[0])


def bessel_j0(x: Array) -> Array:
    return _first_kind(jnp.abs(x), 0)


def bessel_j1(x: Array) -> Array:
    value = _first_kind(jnp.abs(x), 1)
    return jnp.where(x < 0, -value, value)


def bessel_y0(x: Array) -> Array:
    logarithm = 2 / math.pi * jnp.log(x) * _first_kind(x, 0)
    near = _rational(x * x, cephes.Y0_NEAR) + logarithm
    value = jnp.where(x <= 5, near, _hankel(x, 0)[1])
    return replaced(value, x == 0, -jnp.inf)


def bessel_y1(x: Array) -> Array:
    logarithm = 2 / math.pi * (_first_kind(x, 1) * jnp.log(x) - 1 / x)
    near = x * _rational(x * x, cephes.Y1_NEAR) + logarithm
    value = jnp.where(x <= 5, near, _hankel(x, 1)[1])
    return replaced(value, x == 0, -jnp.inf)


def modified_bessel_i0(x: Array) -> Array:
    return jnp.exp(jnp.abs(x)) * lax.bessel_i0e(x)


def modified_bessel_i1(x: Array) -> Array:
    return jnp.exp(jnp.abs(x)) * lax.bessel_i1e(x)


def _modified_second_kind(x: Array, order: int, *, scaled: bool) -> Array:
    logarithm, z = jnp.log(x / 2), x * x - 2
    if order == 0:
        far = _chebyshev(8 / x - 2, cephes.K0_FAR)
        near = _chebyshev(z, cephes.K0_NEAR) - logarithm * modified_bessel_i0(x)
    else:
        far = _chebyshev(8 / x - 2, cephes.K1_FAR)
        near = logarithm * modified_bessel_i1(x) + _chebyshev(z, cephes.K1_NEAR) / x
    near_scale, far_scale = (jnp.exp(x), 1) if scaled else (1, jnp.exp(-x))
    value = jnp.where(x <= 2, near * near_scale, far_scale * far / jnp.sqrt(x))
    return replaced(value, x == 0, jnp.inf)


def spherical_bessel_j0(x: Array) -> Array:
    coefficients = tuple(
        (-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)
    )
    small = jnp.abs(x) < 0.5
    value = jnp.where(
        small, _polynomial(x * x, coefficients), jnp.sin(x) / replaced(x, small, 1)
    )
    return replaced(value, jnp.isinf(x), 0)


TERMS = 14  # of Maclaurin's series in x^3, for |x| < 2.09 in float64


def _maclaurin(first: int) -> cephes.Coefficients:
    steps = [1 / ((first + 3 * k) * (first + 3 * k + 1)) for k in range(TERMS)]
    return tuple(float(c) for c in np.cumprod([1.0, *steps])[::-1])


# Ai(0) and -Ai'(0), DLMF 9.2.
AIRY_AT_ZERO, AIRY_SLOPE = 0.355028053887817239260, 0.258819403792806798405


def airy_ai(x: Array) -> Array:
    size = jnp.abs(x)
    zeta = 2 * size * jnp.sqrt(size) / 3
    leading = 1 / math.sqrt(math.pi) / jnp.sqrt(jnp.sqrt(size))
    z = 1 / zeta
    right = leading * _rational(z, cephes.AIRY_RIGHT) / (2 * jnp.exp(zeta))
    angle = zeta + math.pi / 4
    sine = jnp.sin(angle) * (1 + z * z * _rational(z * z, cephes.AIRY_F))
    left = leading * (sine - jnp.cos(angle) * z * _rational(z * z, cephes.AIRY_G))
    cube = x * x * x
    near = AIRY_AT_ZERO * _polynomial(cube, _maclaurin(2))
    near -= AIRY_SLOPE * x * _polynomial(cube, _maclaurin(3))
    value = jnp.where(x < -2.09, left, jnp.where(x >= 2.09, right, near))
    # torch gives NaN at both infinities.
    value = replaced(value, x > 103.892, 0)
    return replaced(value, jnp.isinf(x), jnp.nan)


STEP = 0.5  # of the sum below: its error is exp(-(pi / STEP)^2)


def _scaled_complement(x: Array) -> Array:
    """Return exp(x^2) erfc(x) for x >= 1: Matta and Reichel 1971, doi 10.2307/2004920."""
    z = x * x
    nodes = [STEP * n for n in range(1, 13)]
    total = sum((math.exp(-t * t) / (z + t * t) for t in nodes), 0.5 / z)
    residue = jnp.exp(z) / jnp.expm1(jnp.minimum(x, 7) * (2 * math.pi / STEP))
    value = 2 * STEP / math.pi * x * total
    value = jnp.where(x < math.pi / STEP, value - 2 * residue, value)
    return jnp.where(x > 1e6, 1 / math.sqrt(math.pi) / x, value)


def erfcx(x: Array) -> Array:
    power = jnp.exp(x * x)
    far = _scaled_complement(jnp.maximum(jnp.abs(x), 1))
    far = jnp.where(x < 0, 2 * power - far, far)
    value = jnp.where(jnp.abs(x) < 1, power * lax.erfc(x), far)
    return replaced(value, x < -26.7, jnp.inf)


def _second_kind(order: int, *, scaled: bool) -> Callable[[Array], Array]:
    return lambda x: _modified_second_kind(x, order, scaled=scaled)


_FUNCTIONS: dict[Any, Callable[[Array], Array]] = {
    aten.special_airy_ai.default: airy_ai,
    aten.special_bessel_j0.default: bessel_j0,
    aten.special_bessel_j1.default: bessel_j1,
    aten.special_bessel_y0.default: bessel_y0,
    aten.special_bessel_y1.default: bessel_y1,
    aten.special_erfcx.default: erfcx,
    aten.special_modified_bessel_i0.default: modified_bessel_i0,
    aten.special_modified_bessel_i1.default: modified_bessel_i1,
    aten.special_modified_bessel_k0.default: _second_kind(0, scaled=False),
    aten.special_modified_bessel_k1.default: _second_kind(1, scaled=False),
    aten.special_scaled_modified_bessel_k0.default: _second_kind(0, scaled=True),
    aten.special_scaled_modified_bessel_k1.default: _second_kind(1, scaled=True),
    aten.special_spherical_bessel_j0.default: spherical_bessel_j0,
}
for _op, _function in _FUNCTIONS.items():
    lowers(_op)(in_opmath(_function))
