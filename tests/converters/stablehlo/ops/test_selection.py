from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

X = torch.tensor([-2.0, -0.5, NAN, 0.5, 3.0])
MASK = torch.tensor([True, False, True, False, True])


@pytest.mark.parametrize("x", [X, torch.arange(-2, 3)])
@pytest.mark.parametrize("bounds", [(-1, 1), (None, 0.5), (0.0, None), (2, -2)])
def test_clamp(compare, x, bounds):
    compare(aten.clamp.default, x, *bounds)


@pytest.mark.parametrize("low", [torch.tensor(0.0), torch.tensor([0, NAN, 0, 1, 4.0])])
def test_clamp_tensor(compare, low):
    compare(aten.clamp.Tensor, X, low)


@pytest.mark.parametrize(
    ("op", "x", "y"),
    [
        (aten.where.self, X, torch.tensor(1, dtype=torch.float64)),
        (aten.where.self, torch.arange(5), X),
        (aten.where.self, torch.arange(5), torch.tensor(1.5)),
        (aten.where.ScalarOther, X, 0),
        (aten.where.ScalarOther, torch.arange(5), 0.5),
        (aten.where.ScalarSelf, 1, X),
        (aten.where.Scalar, 1, 2),
        (aten.where.Scalar, 1.0, 2),
    ],
)
def test_where(compare, op, x, y):
    compare(op, MASK, x, y)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.masked_fill.Scalar, (X, MASK, -INF)),
        (aten.masked_fill.Tensor, (X, MASK, torch.tensor(2.0))),
        (aten.lerp.Scalar, (X, X * 2, 0.7)),
        (aten.lerp.Tensor, (X, X * 2, X)),
        (aten.addcmul.default, (X, X, X)),
        (aten.addcdiv.default, (X, X, X + 9)),
        (aten.copy.default, (X, torch.tensor(1))),
        (aten.fill.Scalar, (X, 2)),
    ],
)
def test_blends(compare, op, args):
    compare(op, *args)
