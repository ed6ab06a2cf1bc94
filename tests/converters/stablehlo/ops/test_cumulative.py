from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

X = torch.randn(3, 7)


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize(
    "name", ["cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"]
)
def test_running(compare, name, dim):
    compare(getattr(aten, name).default, X, dim)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int32])
def test_narrow_cumsum(compare, dtype):
    compare(aten.cumsum.default, torch.ones(3, 4).to(dtype), 1)


def test_cumsum_dtype(compare):
    compare(aten.cumsum.default, X, 1, dtype=torch.float64)


@pytest.mark.parametrize("x", [[1, NAN, 3, 2], [2, 2, 1, 2.0]])
def test_cummax_edges(compare, x):
    compare(aten.cummax.default, torch.tensor(x), 0)


@pytest.mark.parametrize("n", [1, 2])
def test_diff(compare, n):
    compare(aten.diff.default, X, n)


def test_trapezoid_of_infinities_and_wrapping_ends(compare):
    compare(aten.trapezoid.dx, torch.tensor([[INF, 1.0, 2.0], [1.0, INF, 2.0]]))
    compare(aten.trapezoid.dx, torch.full((4,), 127, dtype=torch.int8), dx=0.5)
    compare(aten.trapezoid.dx, torch.tensor([[1.5]]))
