"""Comparisons, predicates and logic: every result is a boolean tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import Operand, promote
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "not_equal": jnp.not_equal,
    "less": jnp.less,
    "less_equal": jnp.less_equal,
    "greater": jnp.greater,
    "greater_equal": jnp.greater_equal,
}


def _compared(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda x, y: function(*promote(x, y))


for _name, _function in _COMPARISONS.items():
    _packet = getattr(aten, _name)
    lowers(_packet.Tensor, _packet.Scalar)(_compared(_function))

_LOGIC: dict[Any, Callable[..., Array]] = {
    aten.logical_and.default: jnp.logical_and,
    aten.logical_or.default: jnp.logical_or,
    aten.logical_xor.default: jnp.logical_xor,
    aten.logical_not.default: jnp.logical_not,
    aten.isnan.default: jnp.isnan,
    aten.isinf.default: jnp.isinf,
    aten.isfinite.default: jnp.isfinite,
    aten.isposinf.default: jnp.isposinf,
    aten.isneginf.default: jnp.isneginf,
    aten.isreal.default: jnp.isreal,
}
for _op, _function in _LOGIC.items():
    lowers(_op)(_function)


@lowers(aten.isclose.default)
def isclose(
    x: Array,
    other: Array,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Array:
    return jnp.isclose(x, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


@lowers(aten.equal.default)
def equal(x: Array, other: Array) -> Array:
    return jnp.all(x == other) if x.shape == other.shape else jnp.zeros((), bool)


@lowers(aten.allclose.default)
def allclose(
    x: Array,
    other: Array,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> Array:
    return jnp.all(isclose(x, other, rtol, atol, equal_nan))


@lowers(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten.isin.Scalar_Tensor)
def isin(
    x: Operand,
    tests: Operand,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Array:
    x, tests = promote(x, tests)
    found = jnp.any(x[..., None] == jnp.ravel(tests), axis=-1)
    return ~found if invert else found
