"""Copies, dtypes and the parts of complex numbers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import DTYPES, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def convert(x: Array, dtype: torch.dtype | None) -> Array:
    """Cast as torch does on x86.

    Floats truncate towards zero. What int32 or int64 cannot hold, and NaN, becomes their lowest
    value, as x86's CVTTSS2SI gives it (Intel SDM, "integer indefinite"). Narrower integers take
    the low bits of an int32, unsigned ones of a float64 those of an int64. LiteRT's CAST kernel
    does that by itself.
    """
    if dtype is None or x.dtype == DTYPES[dtype]:
        return x
    target = DTYPES[dtype]
    if jnp.iscomplexobj(x) and not jnp.issubdtype(target, jnp.complexfloating):
        x = x != 0 if target == np.bool_ else jnp.real(x)
    if jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(target, jnp.integer):
        x = _truncate(widen(x), target)
    return x.astype(target)


def _truncate(x: Array, target: np.dtype[Any]) -> Array:
    """Round floats towards zero; where that does not fit, the lowest value."""
    unsigned = jnp.issubdtype(target, jnp.unsignedinteger)
    long = target.itemsize == 8 or (unsigned and x.dtype == np.float64)
    integer = np.dtype(np.int64 if long else np.int32)
    whole = x.astype(integer)
    if current().target == "litert":
        return whole
    end = 2.0 ** (8 * integer.itemsize - 1)
    lowest = jnp.asarray(-int(end), integer)
    return jnp.where((x >= -end) & (x < end), whole, lowest)


@lowers(aten.to.dtype, aten._to_copy.default, aten.to.dtype_layout)
def to_dtype(
    x: Array, dtype: torch.dtype | None = None, *_: object, **kwargs: object
) -> Array:
    return convert(x, dtype)


@lowers(aten.to.device)
def to_device(
    x: Array, device: object, dtype: torch.dtype | None = None, *_: object, **__: object
) -> Array:
    return convert(x, dtype)


@lowers(aten.to.other, aten.type_as.default)
def to_other(x: Array, other: Array, *_: object, **__: object) -> Array:
    return to_numpy_dtype(x, other.dtype)


def to_numpy_dtype(x: Array, dtype: np.dtype[np.generic]) -> Array:
    names = {v: k for k, v in DTYPES.items()}
    return convert(x, names[np.dtype(dtype)])


@lowers(torch.ops.prims.convert_element_type.default)
def convert_element_type(x: Array, dtype: torch.dtype) -> Array:
    return convert(x, dtype)


@lowers(
    aten.alias.default,
    aten.alias_copy.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.lift.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
)
def identity(x: Array, *_: object, **__: object) -> Array:
    return x


@lowers(aten.view.dtype)
def view_dtype(x: Array, dtype: torch.dtype) -> Array:
    target = DTYPES[dtype]
    if x.dtype == target:
        return x
    if x.dtype == bool or target == np.bool_:
        return x.astype(target)
    ratio = target.itemsize // x.dtype.itemsize
    if ratio > 1:
        x = x.reshape((*x.shape[:-1], x.shape[-1] // ratio, ratio))
    y = lax.bitcast_convert_type(x, target)
    if target.itemsize < x.dtype.itemsize:
        y = y.reshape((*y.shape[:-2], y.shape[-2] * y.shape[-1]))
    return y


@lowers(
    aten.conj.default,
    aten._conj.default,
    aten.conj_physical.default,
    aten._conj_physical.default,
)
def conj(x: Array) -> Array:
    return jnp.conj(x)


@lowers(aten.real.default)
def real(x: Array) -> Array:
    return jnp.real(x)


@lowers(aten.imag.default)
def imag(x: Array) -> Array:
    return jnp.imag(x)


@lowers(aten.complex.default)
def from_parts(real: Array, imag: Array) -> Array:
    real, imag = jnp.broadcast_arrays(real, imag)
    return lax.complex(real, imag)


@lowers(aten.polar.default)
def polar(size: Array, angle: Array) -> Array:
    return from_parts(size * jnp.cos(angle), size * jnp.sin(angle))


@lowers(aten.view_as_real.default)
def view_as_real(x: Array) -> Array:
    return jnp.stack([jnp.real(x), jnp.imag(x)], axis=-1)


@lowers(aten.view_as_complex.default)
def view_as_complex(x: Array) -> Array:
    return lax.complex(x[..., 0], x[..., 1])


@lowers(aten.angle.default)
def angle(x: Array) -> Array:
    if jnp.iscomplexobj(x):
        return jnp.arctan2(jnp.imag(x), jnp.real(x))
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
    half_turn = jnp.where(x < 0, jnp.asarray(np.pi, x.dtype), jnp.zeros((), x.dtype))
    return jnp.where(jnp.isnan(x), x, half_turn)
