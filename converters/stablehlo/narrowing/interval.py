"""Closed ranges of whole numbers, with the arithmetic of Python's integers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import jax.numpy as jnp

Number: TypeAlias = "Interval | int"
_BITS_64 = 2**63


@dataclass(frozen=True, slots=True)
class Interval:
    """Every n with low <= n <= high; low <= high.

    Operators hold for each pair of members: a in x and b in y give a + b in x + y. They are
    defined as those of dimension expressions: // and % round towards minus infinity.
    """

    low: int
    high: int

    def __contains__(self, n: int) -> bool:
        return self.low <= n <= self.high

    def within(self, other: Interval) -> bool:
        """Whether every member is one of the other's."""
        return other.low <= self.low and self.high <= other.high

    def __add__(self, other: Number) -> Interval:
        y = as_interval(other)
        return Interval(self.low + y.low, self.high + y.high)

    def __sub__(self, other: Number) -> Interval:
        y = as_interval(other)
        return Interval(self.low - y.high, self.high - y.low)

    def __mul__(self, other: Number) -> Interval:
        y = as_interval(other)
        return hull_of(a * b for a in (self.low, self.high) for b in (y.low, y.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __floordiv__(self, other: Number) -> Interval:
        y = as_interval(other)
        if 0 in y:
            return Interval(-_BITS_64, _BITS_64)
        return hull_of(a // b for a in (self.low, self.high) for b in (y.low, y.high))

    def __mod__(self, other: Number) -> Interval:
        y = as_interval(other)
        if y.low <= 0:
            return Interval(-_BITS_64, _BITS_64)
        if self.low >= 0 and self.high < y.low:
            return self
        return Interval(0, y.high - 1)

    def __radd__(self, other: int) -> Interval:
        return self + other

    def __rmul__(self, other: int) -> Interval:
        return self * other

    def __rsub__(self, other: int) -> Interval:
        return as_interval(other) - self

    def __rfloordiv__(self, other: int) -> Interval:
        return as_interval(other) // self

    def __rmod__(self, other: int) -> Interval:
        return as_interval(other) % self

    def __str__(self) -> str:
        return f"{self.low} … {self.high}"


INT32 = Interval(-(2**31), 2**31 - 1)


def as_interval(n: Number) -> Interval:
    """Return a number as the interval that holds it alone."""
    return n if isinstance(n, Interval) else Interval(n, n)


def hull_of(numbers: Iterable[int]) -> Interval:
    """Return the least interval that holds all the numbers."""
    found = [*numbers]
    return Interval(min(found), max(found))


def hull(intervals: Iterable[Interval]) -> Interval:
    """Return the least interval that holds all the intervals."""
    found = [*intervals]
    return Interval(min(x.low for x in found), max(x.high for x in found))


def pointwise(function: Callable[[int, int], int]) -> Callable[..., Interval]:
    """Return max or min of intervals: monotone, so ends map to ends."""

    def of(x: Number, y: Number) -> Interval:
        x, y = as_interval(x), as_interval(y)
        return Interval(function(x.low, y.low), function(x.high, y.high))

    return of


@cache
def limits(dtype: Any) -> Interval | None:
    """Return every value of an integer dtype or bool; None for other dtypes."""
    if jnp.issubdtype(dtype, jnp.bool_):
        return Interval(0, 1)
    if not jnp.issubdtype(dtype, jnp.integer):
        return None
    info: Any = jnp.iinfo(dtype)  # type: ignore[no-untyped-call]  # JAX's stub
    return Interval(int(info.min), int(info.max))
