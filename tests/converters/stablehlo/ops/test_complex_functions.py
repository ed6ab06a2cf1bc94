from __future__ import annotations

from itertools import product

import pytest
import torch

aten = torch.ops.aten
INF = float("inf")

PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e-10, -1e-10]
GRID = torch.complex(
    *(torch.tensor(v) for v in zip(*product(PARTS, PARTS), strict=True))
)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize(
    "name",
    ["sqrt", "rsqrt", "acos", "acosh", "asin", "asinh", "atan", "atanh", "log", "sgn"],
)
def test_sides_of_cuts(compare, name, dtype):
    """-0.0 is the other side of a cut."""
    z = GRID.to(dtype)
    if name in ("atan", "atanh"):
        z = z[(z.imag.abs() != 1) & (z.real.abs() != 1)]
    compare(getattr(aten, name).default, z[z != 0] if name == "log" else z)


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_small_parts(compare, name):
    compare(getattr(aten, name).default, GRID, tol=(1e-5, 0))


def test_division_by_zero(compare):
    zero = torch.zeros((), dtype=torch.complex64)
    compare(aten.div.Tensor, GRID, zero)
    compare(aten.reciprocal.default, torch.tensor([0j, 1j, 2 - 1j]))
    compare(aten.pow.Tensor_Scalar, torch.tensor([0j, 1j]), -1)


def test_powers_of_zero(compare):
    compare(aten.pow.Tensor_Scalar, torch.tensor([0j, 1j]), 2 - 1j)


@pytest.mark.parametrize("z", [complex(INF, 0), complex(-INF, 0), complex(3, -1)])
def test_exp2(compare, z):
    compare(aten.exp2.default, torch.tensor([z]))


def test_direction_of_infinity(compare):
    compare(aten.sgn.default, torch.tensor([complex(0, INF), complex(1, 0), 0j]))
