from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
X = torch.randn(2, 40)
Z = torch.randn(2, 40, dtype=torch.complex64)
TOL = (1e-4, 1e-4)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("onesided", [None, False])
def test_stft(compare, normalized, onesided):
    op, rest = aten.stft.default, (normalized, onesided)
    for x in (X, X[0]):
        compare(op, x, 9, 4, 6, torch.hann_window(6), *rest, True, tol=TOL)
    compare(op, X, 8, None, None, None, *rest, False, tol=TOL)
    op, centered = aten.stft.center, (8, 3, None, None, True)
    compare(op, X, *centered, "reflect", *rest, True, tol=TOL)
    compare(op, X[0], *centered, "constant", *rest, True, tol=TOL)


def test_stft_of_a_complex_signal_and_of_doubles(compare):
    compare(aten.stft.default, Z, 8, 3, 8, None, False, None, True, tol=TOL)
    window = torch.hamming_window(8, dtype=torch.float64)
    compare(aten.stft.default, X.double(), 8, 3, 8, window, False, None, True)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("length", [None, 33, 40])
@pytest.mark.parametrize("size", [8, 9])
def test_istft(compare, normalized, length, size):
    window, op = torch.hamming_window(7), aten.istft.default
    for x in (X, X[0]):
        y = torch.stft(
            x, size, 2, 7, window, normalized=normalized, return_complex=True
        )
        rest = (window, True, normalized, None, length)
        compare(op, y, size, 2, 7, *rest, tol=TOL)


def test_istft_of_both_sides(compare):
    op, window = aten.istft.default, torch.hamming_window(8)
    rest = (8, 2, 8, window, True, False, False, None)
    y = torch.stft(Z, 8, 2, window=window, return_complex=True)
    compare(op, y, *rest, True, tol=TOL)
    y = torch.stft(X, 8, 2, window=window, onesided=False, return_complex=True)
    compare(op, y, *rest, False, tol=TOL)


def test_istft_without_a_center_and_longer_than_the_frames(compare):
    op, ones = aten.istft.default, torch.ones(8)
    y = torch.stft(X, 8, 2, window=ones, center=False, return_complex=True)
    compare(op, y, 8, 2, 8, ones, False, tol=TOL)
    compare(op, y, 8, 2, 8, ones, True, False, None, 60, tol=TOL)


def test_complex_by_default_where_the_signal_is(compare):
    compare(aten.stft.default, Z, 8, tol=TOL)
    window = torch.randn(8, dtype=torch.complex64)
    compare(aten.stft.default, X, 8, 3, 8, window, False, None, True, tol=TOL)


@pytest.mark.parametrize("size", [6, 8])
def test_istft_with_a_complex_window(compare, size):
    window = torch.randn(size, dtype=torch.complex64)
    rest = (size, window, True, False, False, None, True)
    y = torch.stft(Z, 8, 2, return_complex=True)
    compare(aten.istft.default, y, 8, 2, *rest, tol=(1e-3, 1e-4))


@pytest.mark.parametrize("size", [8, 9])
@pytest.mark.parametrize("onesided", [None, False])
def test_istft_reads_one_side_of_what_is_not_symmetric(compare, size, onesided):
    y = torch.randn(size, 6, dtype=torch.complex64)
    window = torch.hamming_window(size)
    compare(aten.istft.default, y, size, 2, size, window, True, False, onesided)
