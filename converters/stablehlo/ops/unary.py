"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import floating, in_opmath, widen
from tpu_export.converters.stablehlo.ops import complex_functions as of_complex
from tpu_export.converters.stablehlo.ops.special import digamma, entr, log_ndtr
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

_FLOAT: dict[Any, Callable[[Array], Array]] = {
    aten.acos.default: of_complex.acos,
    aten.acosh.default: of_complex.acosh,
    aten.asin.default: of_complex.asin,
    aten.asinh.default: of_complex.asinh,
    aten.atan.default: of_complex.atan,
    aten.atanh.default: of_complex.atanh,
    aten.cos.default: jnp.cos,
    aten.cosh.default: of_complex.cosh,
    aten.erf.default: lax.erf,
    aten.erfc.default: lax.erfc,
    aten.erfinv.default: lax.erf_inv,
    aten.exp.default: jnp.exp,
    aten.exp2.default: of_complex.exp2,
    aten.expm1.default: jnp.expm1,
    aten.log.default: jnp.log,
    aten.log10.default: jnp.log10,
    aten.log1p.default: jnp.log1p,
    aten.log2.default: jnp.log2,
    aten.reciprocal.default: of_complex.reciprocal,
    aten.rsqrt.default: of_complex.rsqrt,
    aten.sin.default: jnp.sin,
    aten.sinh.default: of_complex.sinh,
    aten.sqrt.default: of_complex.sqrt,
    aten.tan.default: jnp.tan,
    aten.sinc.default: jnp.sinc,
    aten.deg2rad.default: lambda x: x * (np.pi / 180),
    aten.rad2deg.default: lambda x: x * (180 / np.pi),
    aten.lgamma.default: lax.lgamma,
    aten.digamma.default: digamma,
    aten.i0.default: lambda x: jax.scipy.special.i0(x),
    aten.special_i0e.default: lax.bessel_i0e,
    aten.special_i1.default: lambda x: jax.scipy.special.i1(x),
    aten.special_i1e.default: lax.bessel_i1e,
    aten.special_ndtr.default: lambda x: lax.erfc(-x * np.sqrt(0.5).item()) / 2,
    aten.special_ndtri.default: lambda x: jax.scipy.special.ndtri(x),
    aten.special_log_ndtr.default: log_ndtr,
    aten.special_entr.default: entr,
}
_SAME_AS = {
    aten.special_erf.default: aten.erf.default,
    aten.special_erfc.default: aten.erfc.default,
    aten.special_erfinv.default: aten.erfinv.default,
    aten.special_exp2.default: aten.exp2.default,
    aten.special_expm1.default: aten.expm1.default,
    aten.special_log1p.default: aten.log1p.default,
    aten.special_sinc.default: aten.sinc.default,
    aten.special_gammaln.default: aten.lgamma.default,
    aten.special_digamma.default: aten.digamma.default,
    aten.special_psi.default: aten.digamma.default,
    aten.special_i0.default: aten.i0.default,
    aten.arccos.default: aten.acos.default,
    aten.arccosh.default: aten.acosh.default,
    aten.arcsin.default: aten.asin.default,
    aten.arcsinh.default: aten.asinh.default,
    aten.arctan.default: aten.atan.default,
    aten.arctanh.default: aten.atanh.default,
}

for _op, _function in _FLOAT.items():
    lowers(_op)(in_opmath(_function))
for _op, _other in _SAME_AS.items():
    lowers(_op)(in_opmath(_FLOAT[_other]))
lowers(aten.special_expit.default)(in_opmath(lax.logistic))


def _integral(x: Array) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def _rounding(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: x if _integral(x) else function(x)


lowers(aten.floor.default)(_rounding(lax.floor))
lowers(aten.ceil.default)(_rounding(lax.ceil))
lowers(aten.trunc.default, aten.fix.default)(_rounding(jnp.trunc))
lowers(aten.frac.default)(_rounding(lambda x: x - jnp.trunc(x)))


@lowers(aten.round.default)
def round_half_even(x: Array) -> Array:
    if _integral(x):
        return x
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@lowers(aten.round.decimals)
def round_decimals(x: Array, *, decimals: int = 0) -> Array:
    if _integral(x) or decimals == 0:
        return round_half_even(x)
    scale = 10.0 ** abs(decimals)
    wide = widen(x)
    if decimals > 0:
        return (round_half_even(wide * scale) / scale).astype(x.dtype)
    return (round_half_even(wide / scale) * scale).astype(x.dtype)


@lowers(aten.abs.default, aten.absolute.default)
def absolute(x: Array) -> Array:
    return x if x.dtype == bool else jnp.abs(x)


@lowers(aten.neg.default, aten.negative.default)
def neg(x: Array) -> Array:
    return jnp.negative(x)


@lowers(aten.positive.default)
def positive(x: Array) -> Array:
    return x


@lowers(aten.square.default)
def square(x: Array) -> Array:
    x = x.astype(jnp.int64) if x.dtype == bool else x
    return x * x


@lowers(aten.sign.default)
def sign(x: Array) -> Array:
    # Of NaN it is 0 in torch.
    if x.dtype == bool:
        return x
    zero = jnp.zeros((), x.dtype)
    return (x > zero).astype(x.dtype) - (x < zero).astype(x.dtype)


@lowers(aten.sgn.default)
def sgn(x: Array) -> Array:
    return of_complex.direction(x) if jnp.iscomplexobj(x) else sign(x)


@lowers(aten.signbit.default)
def signbit(x: Array) -> Array:
    if _integral(x):
        return x < jnp.zeros((), x.dtype) if x.dtype != bool else jnp.zeros_like(x)
    return jnp.signbit(x)


@lowers(aten.logit.default, aten.special_logit.default)
def logit(x: Array, eps: float | None = None) -> Array:
    (x,) = floating(x)
    wide = widen(x)
    if eps is not None:
        wide = jnp.clip(wide, eps, 1 - eps)
    return jnp.log(wide / (1 - wide)).astype(x.dtype)


@lowers(aten.nan_to_num.default)
def nan_to_num(
    x: Array,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Array:
    if _integral(x):
        return x
    return jnp.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf)


@lowers(aten.mvlgamma.default, aten.special_multigammaln.default)
def mvlgamma(x: Array, p: int) -> Array:
    (x,) = floating(x)
    wide = widen(x)
    constant = p * (p - 1) / 4 * float(np.log(np.pi))
    terms = (lax.lgamma(wide - i / 2) for i in range(p))
    return sum(terms, jnp.full_like(wide, constant)).astype(x.dtype)


@lowers(aten.frexp.Tensor)
def frexp(x: Array) -> tuple[Array, Array]:
    mantissa, exponent = jnp.frexp(widen(x))
    return mantissa.astype(x.dtype), exponent.astype(jnp.int32)
