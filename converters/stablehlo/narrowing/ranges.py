"""Which whole numbers the results of an equation can be, given those of its operands.

A rule gives the results in exact arithmetic. What then exceeds the dtype may have wrapped, so
it is anything that the dtype holds: `results_of` sees to that, for all rules alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from jax.extend.core import JaxprEqn
from jax.lax import GatherScatterMode

from tpu_export.converters.stablehlo.narrowing.interval import (
    Interval,
    hull,
    hull_of,
    limits,
    pointwise,
)

Ranges: TypeAlias = Sequence[Any]  # of Interval; None for what is no whole number
Size: TypeAlias = Callable[[Any], Interval]
Rule: TypeAlias = Callable[[JaxprEqn, Ranges, Size], Interval | Sequence[Interval]]

WIDE = np.dtype(np.int64)
_max, _min = pointwise(max), pointwise(min)
_SHIFTS = Interval(0, 31)


def results_of(eqn: JaxprEqn, operands: Ranges, size: Size) -> list[Interval | None]:
    """Return the range of every result; None for one that is no whole number."""
    bounds = [limits_of(v) for v in eqn.outvars]
    rule = RULES.get(eqn.primitive.name)
    if rule is None or not any(bounds):
        return bounds
    try:
        found = rule(eqn, operands, size)
    except TypeError:  # an operand that the rule needs is no whole number
        return bounds
    several = [found] * len(bounds) if isinstance(found, Interval) else found
    return [
        exact if limit is not None and exact.within(limit) else limit
        for limit, exact in zip(bounds, several, strict=True)
    ]


def is_wide(v: Any) -> bool:
    """Whether a variable is of 64-bit integers."""
    return bool(dtype_of(v) == WIDE)


def dtype_of(v: Any) -> Any:
    """Return a variable's dtype; None for a token."""
    return getattr(v.aval, "dtype", None)


def limits_of(v: Any) -> Interval | None:
    """Return every value that a variable's dtype holds; None where it is no whole number."""
    dtype = dtype_of(v)
    return None if dtype is None else limits(dtype)


def _nary(
    function: Callable[..., Interval],
) -> Callable[[JaxprEqn, Ranges, Size], Interval]:
    def rule(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
        if any(x is None for x in operands):
            raise TypeError
        return function(*operands)

    return rule


def _union(start: int = 0) -> Rule:
    return lambda eqn, operands, size: _known(operands[start:])


def _known(operands: Ranges) -> Interval:
    if any(x is None for x in operands):
        raise TypeError
    return hull(operands)


def _each(eqn: JaxprEqn, operands: Ranges, size: Size) -> list[Interval]:
    """Each result has the values of its operand."""
    return [x if x is not None else Interval(0, 0) for x in operands]


def _divide(x: Interval, y: Interval) -> Interval:
    """Towards zero; by zero XLA gives -1."""
    by = [n for n in (y.low, -1, 1, y.high) if n in y and n != 0]
    found = [-1] if 0 in y else []
    for n in by:
        found += [abs(a) // abs(n) * (1 if a * n >= 0 else -1) for a in (x.low, x.high)]
    return hull_of([*found, 0] if 0 in x else found)


def _remainder(x: Interval, y: Interval) -> Interval:
    """With the sign of x; by zero XLA gives x."""
    most = max(abs(y.low), abs(y.high)) - 1
    if 0 in y or most < 0:
        most = max(abs(x.low), abs(x.high))
    low = max(x.low, -most) if x.low < 0 else 0
    high = min(x.high, most) if x.high > 0 else 0
    return Interval(low, high)


def _bits(x: Interval, y: Interval) -> Interval:
    """or, xor: as many bits as the longer has, and a sign if one has."""
    length = max(n.bit_length() for n in (x.low, x.high, y.low, y.high))
    signed = x.low < 0 or y.low < 0
    return Interval(-(2**length) if signed else 0, 2**length - 1)


def _and(x: Interval, y: Interval) -> Interval:
    positive = [a.high for a in (x, y) if a.low >= 0]
    return Interval(0, min(positive)) if positive else _bits(x, y)


def _not(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    (x,) = operands
    if limits_of(eqn.outvars[0]) == Interval(0, 1):
        return Interval(1 - x.high, 1 - x.low)
    return Interval(-x.high - 1, -x.low - 1)


def _shifted(
    change: Callable[[int, int], int],
) -> Callable[[JaxprEqn, Ranges, Size], Interval]:
    def rule(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
        x, y = operands
        if not y.within(_SHIFTS):
            raise TypeError
        return hull_of(change(a, n) for a in (x.low, x.high) for n in (y.low, y.high))

    return rule


_right = _shifted(lambda a, n: a >> n)


def _logical_shift(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    if operands[0].low < 0:
        raise TypeError
    return _right(eqn, operands, size)


def _magnitude(x: Interval) -> Interval:
    ends = (abs(x.low), abs(x.high))
    return Interval(0 if 0 in x else min(ends), max(ends))


def _sign(x: Interval) -> Interval:
    return Interval((x.low > 0) - (x.low < 0), (x.high > 0) - (x.high < 0))


def _power(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    (x,), y = operands, eqn.params["y"]
    if not 0 <= y <= 64:
        raise TypeError
    ends = hull_of((x.low**y, x.high**y))
    return hull([ends, Interval(0, 0)]) if 0 in x and y else ends


def _iota(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    length = size(eqn.params["shape"][eqn.params["dimension"]])
    return Interval(0, max(length.high - 1, 0))


def _place(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    """argmax, argmin."""
    return Interval(0, max(_count(eqn, eqn.params["axes"], size).high - 1, 0))


def _count(eqn: JaxprEqn, axes: Sequence[int], size: Size) -> Interval:
    """How many elements go into one."""
    shape = _shape(eqn)
    return reduce(lambda n, axis: n * size(shape[axis]), axes, Interval(1, 1))


def _shape(eqn: JaxprEqn) -> Sequence[Any]:
    aval: Any = eqn.invars[0].aval
    return tuple(aval.shape)


def _sum(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    return _known(operands) * _count(eqn, eqn.params["axes"], size)


def _running_sum(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    count = _count(eqn, (eqn.params["axis"],), size)
    return _known(operands) * Interval(1, max(count.high, 1))


def _extreme(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    """Of no elements the dtype's own extreme comes out."""
    if _count(eqn, eqn.params["axes"], size).low < 1:
        raise TypeError
    return _known(operands)


def _dot(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    (left, _), _ = eqn.params["dimension_numbers"]
    return _nary(lambda x, y: x * y * _count(eqn, left, size))(eqn, operands, size)


def _gather(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    """Outside places have the fill value where the mode is to fill."""
    fill = eqn.params["fill_value"]
    if eqn.params["mode"] != GatherScatterMode.FILL_OR_DROP:
        return _known(operands[:1])
    if fill is None:
        raise TypeError
    return _known([operands[0], Interval(int(fill), int(fill))])


def _scatter(eqn: JaxprEqn, operands: Ranges, size: Size) -> Interval:
    return _known([operands[0], operands[2]])


def _top(eqn: JaxprEqn, operands: Ranges, size: Size) -> list[Interval]:
    length = size(_shape(eqn)[eqn.params["axis"]])
    values = operands[0] if operands[0] is not None else Interval(0, 0)
    return [values, Interval(0, max(length.high - 1, 0))]


_same = _union()
RULES: dict[str, Rule] = {
    "add": _nary(lambda x, y: x + y),
    "sub": _nary(lambda x, y: x - y),
    "mul": _nary(lambda x, y: x * y),
    "neg": _nary(lambda x: -x),
    "max": _nary(_max),
    "min": _nary(_min),
    "clamp": _nary(lambda low, x, high: _min(_max(x, low), high)),
    "abs": _nary(_magnitude),
    "sign": _nary(_sign),
    "square": _nary(lambda x: _magnitude(x) * _magnitude(x)),
    "integer_pow": _power,
    "div": _nary(_divide),
    "rem": _nary(_remainder),
    "and": _nary(_and),
    "or": _nary(_bits),
    "xor": _nary(_bits),
    "not": _not,
    "shift_left": _shifted(lambda a, n: a << n),
    "shift_right_arithmetic": _right,
    "shift_right_logical": _logical_shift,
    "select_n": _union(1),
    "concatenate": _same,
    "pad": _same,
    **dict.fromkeys(
        (
            "broadcast_in_dim", "convert_element_type", "copy", "cummax", "cummin",
            "reshape", "rev", "slice", "split", "squeeze", "transpose",
        ),
        _same,
    ),
    "dynamic_slice": lambda eqn, operands, size: _known(operands[:1]),
    "dynamic_update_slice": lambda eqn, operands, size: _known(operands[:2]),
    "gather": _gather,
    "scatter": _scatter,
    "sort": _each,
    "optimization_barrier": _each,
    "top_k": _top,
    "iota": _iota,
    "argmax": _place,
    "argmin": _place,
    "reduce_max": _extreme,
    "reduce_min": _extreme,
    "reduce_sum": _sum,
    "cumsum": _running_sum,
    "dot_general": _dot,
    "dim_as_value": lambda eqn, operands, size: size(eqn.params["dim"]),
}  # fmt: skip
