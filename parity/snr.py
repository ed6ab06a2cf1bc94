"""Signal to noise: how much of an array is left after an approximation, in decibels."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from tpu_export.converters.litert.quantize.masks import FAR

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Elements this many times larger than the typical one are outliers or sentinels, such as a
# mask's -1e9. Where nothing is above 1 there are none: probabilities are just uneven.
_BULK = 100.0


def snr(actual: Array, expected: Array) -> float:
    """Return 10 log10 of the expected's power by the error's; infinity when they are equal.

    Elements that are no numbers in the expected array are left out.

    >>> round(snr(np.array([1.0, 1.01]), np.array([1.0, 1.0])), 1)
    43.0
    """
    e = np.asarray(expected, np.float64).reshape(-1)
    a = np.asarray(actual, np.float64).reshape(-1)
    finite = np.isfinite(e)
    signal, noise = _power(e[finite]), _power(a[finite] - e[finite])
    if noise == 0:
        return math.inf
    if not math.isfinite(noise) or signal == 0:
        return -math.inf
    return 10 * math.log10(signal / noise)


def bulk_snr(actual: Array, expected: Array) -> float:
    """Return the smaller of `snr` and that of the elements within 100 times the median's size.

    An outlier hides with its size what happens to all the others. Values of a mask are left
    out altogether: a quantizer may clamp them.
    """
    e = np.asarray(expected, np.float64).reshape(-1)
    a = np.asarray(actual, np.float64).reshape(-1)
    size = np.abs(e)
    known = size[np.isfinite(size) & (size > 0)]
    if not known.size or known.max() <= 1:
        return snr(a, e)
    bulk = size <= _BULK * np.median(known)
    kept = bulk | (e > FAR)
    whole = snr(a[kept], e[kept])
    return whole if bulk.all() else min(whole, snr(a[bulk], e[bulk]))


def _power(x: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sum(np.square(x)))
