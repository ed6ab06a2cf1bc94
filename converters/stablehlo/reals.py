"""Numbers that are computed from dynamic sizes and are not whole: b ** -0.5, t / 3, 1.5 * h."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
from jax import Array

Dim = Any  # an int or a JAX dimension expression
# Products of a size below 2**32 with such a factor are exact in float64.
_EXACT_BITS = 20


class Real:
    """A Python float whose value depends on dynamic sizes.

    Rules take it for a number: it has no shape, and promotes as torch's numbers do.
    Invariant: value == quotient[0] / quotient[1] where there is a quotient.

    Attributes:
        value: as float64.
        quotient: dimension and divisor, where the value is exactly that.
    """

    def __init__(self, value: Array, quotient: tuple[Dim, int] | None = None) -> None:
        self.value = value
        self.quotient = quotient

    def __jax_array__(self) -> Array:
        return self.value


def real(x: Any) -> Any:
    """Return a size or number as a float."""
    if isinstance(x, Real | float):
        return x
    if isinstance(x, int):
        return float(x)
    return Real(jnp.asarray(x, jnp.float64), (x, 1))


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Real) else real(x)


def _in_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that gives a Real as soon as a float takes part."""

    def apply(*operands: Any) -> Any:
        if any(isinstance(x, Real) for x in operands) or (
            any(isinstance(x, float) for x in operands)
            and not all(isinstance(x, float | int) for x in operands)
        ):
            return Real(function(*(jnp.asarray(_value(x)) for x in operands)))
        return function(*operands)

    return apply


def _product(a: Any, b: Any) -> Any:
    found = _in_floats(operator.mul)(a, b)
    if isinstance(found, Real):
        found.quotient = _exact(a, b) or _exact(b, a)
    return found


def _exact(a: Any, b: Any) -> tuple[Dim, int] | None:
    """Return size * factor as a quotient, where float64 computes it without rounding."""
    size = a.quotient if isinstance(a, Real) else None
    if size is None or not isinstance(b, float | int) or b < 0:
        return None
    return _times(size, b)


def _times(size: tuple[Dim, int], factor: float) -> tuple[Dim, int] | None:
    top, bottom = Fraction(factor).as_integer_ratio()
    if max(top * size[1], bottom * size[1]).bit_length() > _EXACT_BITS:
        return None
    return size[0] * top, size[1] * bottom


def scaled_size(size: Dim, factor: float) -> Dim | None:
    """Return size * factor rounded down; None where float64 might round otherwise."""
    found = _times((size, 1), factor)
    return None if found is None else found[0] // found[1]


def _divided(a: Any, b: Any) -> Any:
    if all(isinstance(x, float | int) for x in (a, b)):
        return a / b
    top, bottom = real(a), real(b)
    found = Real(jnp.asarray(_value(top) / _value(bottom)))
    exact = isinstance(bottom, float) and bottom.is_integer() and bottom > 0
    if isinstance(top, Real) and top.quotient and exact:
        found.quotient = top.quotient[0], top.quotient[1] * int(bottom)
    return found


def whole(x: Any) -> Dim:
    """Return a number of sizes rounded down, as a size.

    Raises:
        NotImplementedError: float64 might round to another number than a quotient of sizes.
    """
    if not isinstance(x, Real):
        return int(x) if isinstance(x, float) else x
    if x.quotient is None:
        message = "a size computed in floating point from dynamic sizes"
        raise NotImplementedError(message)
    return x.quotient[0] // x.quotient[1]


def whole_up(x: Any) -> Dim:
    """Return a number of sizes rounded up, as a size."""
    if not isinstance(x, Real) or x.quotient is None:
        return -int(-x // 1) if isinstance(x, float) else whole(x)
    return -(-x.quotient[0] // x.quotient[1])


OPERATORS: dict[object, Callable[..., Any]] = {
    operator.add: _in_floats(operator.add),
    operator.sub: _in_floats(operator.sub),
    operator.mul: _product,
    operator.pow: _in_floats(operator.pow),
    operator.neg: _in_floats(operator.neg),
    operator.truediv: _divided,
}
