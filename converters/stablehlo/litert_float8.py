"""Weights of 8-bit floats, which LiteRT lacks, as float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

_FLOAT8 = (jnp.float8_e4m3fn, jnp.float8_e5m2)


def is_float8(dtype: Any) -> bool:
    """Whether a dtype is one of torch's 8-bit floats."""
    return dtype in _FLOAT8


def without_float8(closed: ClosedJaxpr, n_weights: int) -> ClosedJaxpr:
    """Return the program that takes float32 for weights of 8-bit floats; itself without any.

    It makes 8-bit floats of them again, which is exact, and done before the conversion.

    Args:
        closed: of any dtypes; its first `n_weights` arguments are the weights.
    """
    given: list[Any] = [v.aval for v in closed.jaxpr.invars]
    small = [is_float8(aval.dtype) for aval in given[:n_weights]]
    if not any(small):
        return closed

    def function(*arrays: Array) -> list[Array]:
        own = [x.astype(aval.dtype) for x, aval in zip(arrays, given, strict=True)]
        found: list[Array] = jaxpr_as_fun(closed)(*own)
        return found

    small += [False] * (len(given) - n_weights)
    taken = [
        jax.ShapeDtypeStruct(aval.shape, jnp.float32 if is_small else aval.dtype)
        for aval, is_small in zip(given, small, strict=True)
    ]
    with jax.enable_x64(True):
        return jax.make_jaxpr(function)(*taken)
