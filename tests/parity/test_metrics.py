from __future__ import annotations

import numpy as np
import pytest

from tpu_export.parity.metrics import difference

F = np.float32
BASE = np.linspace(-1, 1, 101, dtype=F)


def nudged(size: float) -> np.ndarray:
    out = BASE.copy()
    out[50] += F(size)
    return out


@pytest.mark.parametrize(
    ("actual", "expected", "passed"),
    [
        (BASE, BASE, True),
        (nudged(2e-5), BASE, True),
        (nudged(2e-3), BASE, False),  # one element near zero counts in full
        (BASE.astype("float64"), BASE, False),
        (BASE[:-1], BASE, False),
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 3]), np.array([1, 2]), False),
        (np.array([True]), np.array([False]), False),
        (np.array([np.nan, 1], F), np.array([np.nan, 1], F), True),
        (np.array([np.nan, 1], F), np.array([0, 1], F), False),
        (np.array([np.inf, 1], F), np.array([-np.inf, 1], F), False),
        (np.array([np.inf, 1], F), np.array([np.inf, 1], F), True),
        (np.zeros(3, F), np.zeros(3, F), True),
        (np.full(3, 1e-30, F), np.zeros(3, F), False),
        (np.zeros(0, F), np.zeros(0, F), True),
        (np.array([1 + 1j], "complex64"), np.array([1 - 1j], "complex64"), False),
    ],
)
def test_verdict(actual: np.ndarray, expected: np.ndarray, passed: bool) -> None:
    assert difference(actual, expected).passed is passed


def test_figures_are_what_they_say() -> None:
    d = difference(np.array([3.0, 4.5]), np.array([3.0, 4.0]), 0.1)
    assert d.max_abs == 0.5
    assert d.max_rel == pytest.approx(0.5 / (4 + np.sqrt(12.5)))
    assert d.cosine == pytest.approx(27 / (np.sqrt(29.25) * 5))
    assert d.threshold == 0.1


def test_integers_ignore_a_tolerance() -> None:
    assert not difference(np.array([1, 3]), np.array([1, 2]), 0.9).passed
