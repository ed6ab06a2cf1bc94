"""Decibels of known arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tpu_export.parity.snr import bulk_snr, snr


@pytest.mark.parametrize(
    ("actual", "expected", "decibels"),
    [
        ([1.0, 1.0], [1.0, 1.0], math.inf),
        ([0.9, 1.1], [1.0, 1.0], 20.0),
        ([0.0, 0.0], [1.0, 1.0], 0.0),
        ([1.0, 1.0], [0.0, 0.0], -math.inf),
        ([math.nan, 1.0], [1.0, 1.0], -math.inf),
        ([-math.inf, 1.1], [-math.inf, 1.0], 20.0),
        ([], [], math.inf),
    ],
)
def test_snr(actual: list[float], expected: list[float], decibels: float) -> None:
    assert snr(np.array(actual), np.array(expected)) == pytest.approx(decibels)


def test_a_sentinel_does_not_hide_the_others() -> None:
    expected = np.array([-1e9, 1.0, -2.0, 3.0])
    actual = np.array([-1e9, 0.0, 0.0, 0.0])
    assert snr(actual, expected) > 150
    assert bulk_snr(actual, expected) == pytest.approx(0.0)


def test_a_clamped_mask_loses_nothing() -> None:
    expected = np.array([-1e9, 1.0, -2.0, 3.0])
    assert bulk_snr(np.array([-20.0, 1.0, -2.0, 3.0]), expected) == math.inf


def test_a_clipped_outlier_is_a_loss() -> None:
    expected = np.array([1e5, 1.0, -2.0, 3.0])
    assert bulk_snr(np.array([10.0, 1.0, -2.0, 3.0]), expected) < 1


def test_small_probabilities_are_no_bulk() -> None:
    expected = np.array([0.997, 0.001, 0.001, 0.001])
    actual = np.array([1.0, 0.0, 0.0, 0.0])
    assert bulk_snr(actual, expected) == snr(actual, expected)
