from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
X = torch.randn(3, 8, 5)
Z = torch.randn(3, 8, 5, dtype=torch.complex64)
D = torch.randn(2, 6, dtype=torch.float64)
TOL = (1e-4, 1e-4)
NORMS = [None, "forward", "backward", "ortho"]
REAL_IN, REAL_OUT = ("rfft", "ihfft"), ("irfft", "hfft")


def given(name: str) -> torch.Tensor:
    return X if name in REAL_IN or name[:-1] in REAL_IN else Z


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_along_one_axis(compare, name, norm):
    op, x = getattr(aten, f"fft_{name}").default, given(name)
    compare(op, x, None, -1, norm, tol=TOL)
    compare(op, x, 11, 1, norm, tol=TOL)  # padded with zeros
    compare(op, x, 4, 1, norm, tol=TOL)  # cut


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_along_many_axes(compare, name, norm):
    x = given(name)
    flat, many = getattr(aten, f"fft_{name}2"), getattr(aten, f"fft_{name}n")
    compare(flat.default, x, None, [-2, -1], norm, tol=TOL)
    compare(flat.default, x, [4, 7], [0, 1], norm, tol=TOL)
    compare(many.default, x, None, None, norm, tol=TOL)
    compare(many.default, x, [6, 4], None, norm, tol=TOL)
    compare(many.default, x, None, [2, 0], norm, tol=TOL)
    compare(many.default, x, [-1, 4], [0, 1], norm, tol=TOL)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft"])
def test_other_dtypes(compare, name):
    op = getattr(aten, f"fft_{name}").default
    compare(op, D)
    compare(op, torch.arange(6).view(2, 3), tol=TOL)
    compare(op, torch.tensor([True, False, True]), tol=TOL)


@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize("dims", [[2], [1], [0, 1], [0, 1, 2]])
def test_core_forms(compare, dims, normalization):
    for onesided in (True, False):
        compare(aten._fft_r2c.default, X, dims, normalization, onesided, tol=TOL)
    for forward in (True, False):
        compare(aten._fft_c2c.default, Z, dims, normalization, forward, tol=TOL)
    for size in (2 * Z.shape[dims[-1]] - 1, 2 * Z.shape[dims[-1]] - 2):
        compare(aten._fft_c2r.default, Z, dims, normalization, size, tol=TOL)


def test_no_axis(compare):
    compare(aten._fft_c2c.default, Z, [], 0, True)


@pytest.mark.parametrize("dims", [None, [0], [1, 2]])
def test_shifts(compare, dims):
    compare(aten.fft_fftshift.default, X, dims)
    compare(aten.fft_ifftshift.default, X, dims)


@pytest.mark.parametrize("n", [1, 4, 7])
def test_frequencies(compare, n):
    for op in (aten.fft_fftfreq.default, aten.fft_rfftfreq.default):
        compare(op, n)
        compare(op, n, 0.25)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_stft_and_back(check_module, center, normalized):
    class Stft(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("window", torch.hann_window(16))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            options = {"n_fft": 16, "hop_length": 4, "window": self.window}
            options |= {"center": center, "normalized": normalized}
            z = torch.stft(x, **options, return_complex=True)
            parts = (z.real, z.imag, z.abs())
            return (*parts, torch.istft(z, **options)) if center else parts

    check_module(Stft(), (torch.randn(2, 64),), tol=TOL)
