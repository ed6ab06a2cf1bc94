"""How far two arrays are apart, and whether that is close enough for their dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# An element passes when
#   |actual - expected| <= tolerance * (|expected| + rms(expected)).
# float32: XLA and torch sum in different orders; after a hundred layers the measured
# error is 1e-6 … 4e-5 of the output's rms. The halves round at 2^-8 and 2^-11 a layer.
TOLERANCES = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}


@dataclass(frozen=True)
class Difference:
    """The distance of one output from its reference.

    Attributes:
        max_abs: largest |actual - expected| over finite elements.
        max_rel: largest |actual - expected| / (|expected| + rms(expected)): what is
            compared with `threshold`.
        cosine: cosine similarity over finite elements; 1.0 when both are zero.
        threshold: allowed max_rel; 0 means exact (integers, booleans).
        note: why it failed when numbers alone do not say it.
    """

    max_abs: float
    max_rel: float
    cosine: float
    threshold: float
    passed: bool
    note: str = ""


def difference(
    actual: Array, expected: Array, tolerance: float | None = None
) -> Difference:
    """Compare an output with its reference.

    Shape, dtype and the pattern of NaN and infinities must be the same.
    """
    dtype = np.dtype(expected.dtype)
    threshold = TOLERANCES.get(dtype.name, 0.0) if tolerance is None else tolerance
    if dtype.name not in TOLERANCES:
        threshold = 0.0
    problem = _mismatch(actual, expected)
    if problem:
        return Difference(np.inf, np.inf, 0.0, threshold, passed=False, note=problem)
    wide = np.complex128 if dtype.kind == "c" else np.float64
    finite = np.isfinite(expected.astype(wide))
    a, e = actual.astype(wide)[finite], expected.astype(wide)[finite]
    error = np.abs(a - e)
    if not error.size:
        return Difference(0.0, 0.0, 1.0, threshold, passed=True)
    scale = np.abs(e) + np.sqrt(np.mean(np.abs(e) ** 2))
    relative = np.divide(
        error, scale, out=np.where(error > 0, np.inf, 0.0), where=scale > 0
    )
    worst = float(relative.max())
    return Difference(
        float(error.max()), worst, _cosine(a, e), threshold, passed=worst <= threshold
    )


def _mismatch(actual: Array, expected: Array) -> str:
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype != expected.dtype:
        return f"dtype {actual.dtype}, expected {expected.dtype}"
    if expected.dtype.name not in TOLERANCES:
        return ""
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    a, e = actual.astype(wide), expected.astype(wide)
    if not np.array_equal(np.isnan(a), np.isnan(e)):
        return f"NaN at {int(np.sum(np.isnan(a) != np.isnan(e)))} other elements"
    infinite = np.isinf(e) | np.isinf(a)
    if not np.array_equal(a[infinite], e[infinite], equal_nan=True):
        return "infinities differ"
    return ""


def _cosine(a: Array, e: Array) -> float:
    norm = float(np.linalg.norm(a) * np.linalg.norm(e))
    if norm == 0:
        return 1.0 if not a.any() and not e.any() else 0.0
    return (
        float(min(1.0, np.abs(np.vdot(a, e)) / norm))
        if a.dtype.kind == "c"
        else float(np.clip(np.dot(a, e) / norm, -1.0, 1.0))
    )


def recorded_limits(arrays: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits that were recorded with golden arrays."""
    start = "limits/"
    return {
        name.removeprefix(start): float(array)
        for name, array in arrays.items()
        if name.startswith(start)
    }
