"""Numbers at the edges, and dtypes with few kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tpu_export.converters.litert.selftest.entry import (
    REFUSED,
    RIGHT,
    WRONG,
    Entry,
    Outcome,
    entry,
    normal,
    whole,
)

_NAN = np.array([[1, np.nan, 3], [4, 5, -np.inf]], np.float32)
_TWO = np.full_like(_NAN, 2)
_FLOATS = (np.array([7.5, -7.5, 3.25], np.float32), np.array([2, 2, -2], np.float32))
_SMALL = (whole(7, -7, 9), whole(3, 3, -2))
_BIG = (
    whole(2**40 + 3, -(2**40) - 3, 5, dtype=np.int64),
    whole(7, 7, -2, dtype=np.int64),
)
_BYTES = (whole(100, -100, 7, dtype=np.int8), whole(50, -50, 3, dtype=np.int8))
_UNSIGNED = (whole(200, 100, 7, dtype=np.uint8), whole(100, 50, 3, dtype=np.uint8))
_SHORT = (whole(30000, -7, 7, dtype=np.int16), whole(5000, 3, 3, dtype=np.int16))
_BOOLEANS = (np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool))
_FORMS = "litert_forms"
_NAN_LIMIT = "none: a limit in docs/litert.md"
_DTYPES = "dtypes are refused"
_HALVES = "form of half types"
Row = tuple[str, Callable[..., Any], tuple[Any, ...], Outcome, str]


def _through(dtype: Any) -> Callable[..., Any]:
    return lambda x, y: (x.astype(dtype) + y.astype(dtype)).astype(jnp.float32)


def _windows(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 1), "VALID")


def _three(x: Any) -> Any:
    return x.dtype.type(3)


_ROWS: tuple[Row, ...] = (
    ("maximum(NaN, x)", lax.max, (_NAN, _TWO), WRONG, _NAN_LIMIT),
    ("maximum(x, NaN)", lax.max, (_TWO, _NAN), RIGHT, "relied on"),
    ("minimum(NaN, x)", lax.min, (_NAN, _TWO), WRONG, _NAN_LIMIT),
    ("amax of NaN", lambda x: jnp.max(x, 1), (_NAN,), WRONG, _NAN_LIMIT),
    (
        "argmax of NaN",
        lambda x: lax.argmax(x, 1, jnp.int32),
        (_NAN,),
        WRONG,
        _NAN_LIMIT,
    ),
    ("max windows of NaN", _windows, (_NAN,), WRONG, _NAN_LIMIT),
    ("relu of NaN", lambda x: jnp.maximum(x, 0), (_NAN,), RIGHT, "relied on"),
    (
        "rsqrt(0)",
        lax.rsqrt,
        (np.array([0, 4, -1], np.float32),),
        WRONG,
        "none known",
    ),
    ("cbrt(-x)", lax.cbrt, (_FLOATS[0],), WRONG, "no rule emits it"),
    (
        "NaN to int32",
        lambda x: x.astype(jnp.int32),
        (_NAN[:, :2],),
        WRONG,
        "none: undefined in torch",
    ),
    ("remainder float32", lax.rem, _FLOATS, WRONG, _FORMS),
    ("remainder int32", lax.rem, _SMALL, WRONG, _FORMS),
    ("remainder int64", lax.rem, _BIG, WRONG, _FORMS),
    ("division int32", lax.div, _SMALL, RIGHT, "relied on"),
    ("division int64", lax.div, _BIG, REFUSED, _FORMS),
    ("product int64", lax.mul, _BIG, RIGHT, "relied on"),
    ("abs int64", lax.abs, _BIG[:1], REFUSED, _FORMS),
    ("sign int64", lax.sign, _BIG[:1], REFUSED, _FORMS),
    (
        "shift left int32",
        lambda x: lax.shift_left(x, _three(x)),
        _SMALL[:1],
        REFUSED,
        _FORMS,
    ),
    (
        "shift right int32",
        lambda x: lax.shift_right_arithmetic(x, _three(x)),
        _SMALL[:1],
        RIGHT,
        "relied on",
    ),
    (
        "logical shift right int32",
        lambda x: lax.shift_right_logical(x, _three(x)),
        _SMALL[:1],
        WRONG,
        "rules shift no negative number so",
    ),
    (
        "shift right int64",
        lambda x: lax.shift_right_arithmetic(x, _three(x)),
        _BIG[:1],
        REFUSED,
        _FORMS,
    ),
    ("or int32", lax.bitwise_or, _SMALL, REFUSED, _FORMS),
    ("sum int8", lax.add, _BYTES, REFUSED, _FORMS),
    ("less int8", lax.lt, _BYTES, REFUSED, _FORMS),
    ("reverse int8", lambda x: lax.rev(x, (0,)), _BYTES[:1], REFUSED, _FORMS),
    ("sum uint8", lax.add, _UNSIGNED, REFUSED, _FORMS),
    ("sum int16", lax.add, _SHORT, RIGHT, _FORMS),
    ("maximum int16", lax.max, _SHORT, REFUSED, _FORMS),
    ("division int16", lax.div, _SHORT, REFUSED, _FORMS),
    ("xor bool", lax.bitwise_xor, _BOOLEANS, REFUSED, _FORMS),
    ("maximum bool", lax.max, _BOOLEANS, REFUSED, _FORMS),
    ("less bool", lax.lt, _BOOLEANS, REFUSED, _FORMS),
    ("all bool", jnp.all, _BOOLEANS[1:], RIGHT, "relied on by litert_forms"),
    ("bfloat16 inside", _through(jnp.bfloat16), _FLOATS, REFUSED, _HALVES),
    ("float16 inside", _through(jnp.float16), _FLOATS, RIGHT, _HALVES),
    ("float64 inside", _through(jnp.float64), _FLOATS, REFUSED, _DTYPES),
    (
        "matrix product int32",
        lambda x, y: x[:, None] @ y[None],
        _SMALL,
        REFUSED,
        "the converter's own refusal",
    ),
    ("exponential", jnp.exp, (normal(5),), RIGHT, "relied on"),
)
NUMBERS: tuple[Entry, ...] = tuple(entry(*row) for row in _ROWS)
