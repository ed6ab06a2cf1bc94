from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

X = torch.tensor([-1.0, 0.0, 2.0, NAN, INF, -INF])


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("y", [2, 0.5, torch.tensor(2), torch.arange(6)])
def test_comparisons(compare, name, y):
    kind = "Tensor" if isinstance(y, torch.Tensor) else "Scalar"
    compare(getattr(getattr(aten, name), kind), X, y)


@pytest.mark.parametrize(
    "name", ["isnan", "isinf", "isfinite", "isposinf", "logical_not"]
)
def test_predicates(compare, name):
    compare(getattr(aten, name).default, X)


@pytest.mark.parametrize(
    "name", ["logical_and", "logical_or", "logical_xor", "isclose"]
)
def test_pairs(compare, name):
    compare(getattr(aten, name).default, X, X.flip(0))


def test_isin(compare):
    compare(aten.isin.Tensor_Tensor, torch.arange(6), torch.tensor([1, 4]))
