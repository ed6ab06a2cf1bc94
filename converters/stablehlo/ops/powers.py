"""Powers, of integers too: x ** y, and x * 2 ** y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import (
    DTYPES,
    Operand,
    cast,
    result_type,
    widen,
)
from tpu_export.converters.stablehlo.ops import complex_functions as of_complex
from tpu_export.converters.stablehlo.ops.binary import mul
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

# 2 ** 64 and what is a multiple of it are 0 in every integer type.
_WIDEST = 64
_ROOTS: dict[float, Callable[[Array], Array]] = {
    0.5: of_complex.sqrt,
    -0.5: of_complex.rsqrt,
}
_POWERS: dict[float, Callable[[Array], Array]] = {
    -1: of_complex.reciprocal,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -2: lambda x: of_complex.reciprocal(x * x),
}


@lowers(
    aten.pow.Tensor_Tensor,
    aten.pow.Tensor_Scalar,
    aten.pow.Scalar,
)
def power(x: Operand, y: Operand) -> Array:
    dtype = result_type(x, y)
    if jnp.issubdtype(dtype, jnp.integer):
        return _of_integers(x, y, dtype)
    a = widen(cast(x, dtype))
    if isinstance(y, int | float):
        # Of -inf a root is NaN, a power is not; torch takes roots but of float16.
        known = _POWERS if dtype == DTYPES[torch.float16] else _POWERS | _ROOTS
        if y in known:
            return known[y](a).astype(dtype)
        if float(y).is_integer() and 0 <= y <= 16:
            return lax.integer_pow(a, int(y)).astype(dtype)
    return of_complex.power(a, widen(cast(y, dtype))).astype(dtype)


def _of_integers(x: Operand, y: Operand, dtype: np.dtype[Any]) -> Array:
    base = cast(x, dtype)
    if isinstance(y, int):
        exponent = int(np.asarray(y).astype(dtype))
        if exponent >= 0:
            return lax.integer_pow(base, exponent)
    exponents = cast(y, dtype)
    even = isinstance(x, int) and x % 2 == 0
    whole = _by_squaring(base, exponents, even=even)
    return jnp.where(exponents < 0, _inverse_power(base, exponents), whole)


def _by_squaring(x: Array, y: Array, *, even: bool) -> Array:
    """Return x ** y, which wraps, for y >= 0; no loop, which LiteRT could not load."""
    largest = int(np.iinfo(y.dtype).max)
    top = min(_WIDEST - 1, largest) if even else largest
    result = jnp.ones_like(x)
    for place in range(top.bit_length()):
        bit = lax.shift_right_logical(y, jnp.full_like(y, place)) & cast(1, y.dtype)
        result = jnp.where(bit != 0, result * x, result)
        x = x * x
    return result if top == largest else jnp.where(y > top, 0, result).astype(x.dtype)


def _inverse_power(x: Array, y: Array) -> Array:
    """Integer x ** y for negative y: 0 but for 1 and -1."""
    alternating = jnp.where(y % 2 == 0, 1, -1)
    value = jnp.where(x == 1, 1, jnp.where(x == -1, alternating, 0))
    return value.astype(x.dtype)


@lowers(
    aten.float_power.Tensor_Tensor,
    aten.float_power.Tensor_Scalar,
    aten.float_power.Scalar,
)
def float_power(x: Operand, y: Operand) -> Array:
    complex_ = any(jnp.iscomplexobj(v) for v in (x, y))
    wide = np.dtype(np.complex128 if complex_ else np.float64)
    if isinstance(y, int | float):
        return power(cast(x, wide), y)
    return power(cast(x, wide), cast(y, wide))


@lowers(aten.ldexp.Tensor)
def ldexp(x: Operand, y: Operand) -> Array:
    """In two steps, as torch has it: the power of two may overflow where the product fits."""
    return mul(x, power(2.0, y))
