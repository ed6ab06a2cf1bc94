"""Valid JSON for every number: NaN and the infinities are the strings that name them."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import inf, isfinite, isnan, nan
from typing import Any

# JSON has no such numbers (RFC 8259, section 6); the names are those of proto3's JSON.
NAMES = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def json_text(value: object, default: Callable[[Any], object] | None = None) -> str:
    """Return a value as JSON.

    >>> json_text({"y": [1.5, float("nan"), float("-inf")]})
    '{"y": [1.5, "NaN", "-Infinity"]}'
    """
    return json.dumps(_named(value), default=default, allow_nan=False)


def numbers(value: Any) -> Any:
    """Return a value of JSON with the named numbers as floats.

    >>> numbers([[1, "Infinity"]])
    [[1, inf]]
    """
    if isinstance(value, list):
        return [numbers(v) for v in value]
    return NAMES.get(value, value) if isinstance(value, str) else value


def _named(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _named(v) for key, v in value.items()}
    return [_named(v) for v in value] if isinstance(value, list | tuple) else value
