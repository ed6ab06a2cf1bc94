"""Bounds of symbolic sizes, from the ranges of the signature's dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpu_export.converters.stablehlo.narrowing.interval import Interval, pointwise
from tpu_export.converters.stablehlo.shapes import spelled
from tpu_export.runtime.expressions import FUNCTIONS, evaluate
from tpu_export.runtime.signature import Dim

_ANY = Interval(0, 2**63 - 1)
_FUNCTIONS = {**FUNCTIONS, "max": pointwise(max), "min": pointwise(min)}


class Sizes:
    """The bounds of any size; a size is never negative."""

    def __init__(self, dims: Sequence[Dim]) -> None:
        self._dims = {
            d.name: Interval(d.minimum, _ANY.high if d.maximum is None else d.maximum)
            for d in dims
        }
        self.unbounded = [d.name for d in dims if d.maximum is None]
        self._known: dict[str, Interval] = {}

    def __call__(self, size: Any) -> Interval:
        """Return the bounds of an int or a JAX dimension expression."""
        text = spelled(size)
        if isinstance(text, int):
            return Interval(text, text)
        if text not in self._known:
            self._known[text] = self._bounds(text)
        return self._known[text]

    def _bounds(self, text: str) -> Interval:
        try:
            found = evaluate(text, self._dims, _FUNCTIONS)
        except ValueError:  # longer than expressions may be
            return _ANY
        low, high = max(found.low, 0), min(found.high, _ANY.high)
        return Interval(low, high) if low <= high else _ANY
