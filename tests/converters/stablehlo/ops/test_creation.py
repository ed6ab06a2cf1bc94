from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
INT32 = {"dtype": torch.int32}

X = torch.randn(2, 3).bfloat16()
CASES = [
    (aten.arange.default, (5,), {}),
    (aten.arange.default, (2.5,), {}),
    (aten.arange.start, (2, 5), {"dtype": torch.float32}),
    (aten.arange.start_step, (5, -2, -3), {}),
    (aten.arange.start_step, (0, 1, 0.1), {}),
    (aten.full.default, ([2, 3], True), {}),
    (aten.full.default, ([2, 3], 7), {}),
    (aten.full.default, ([], 0.5), {"dtype": torch.float64}),
    (aten.zeros.default, ([2],), {}),
    (aten.ones.default, ([2],), {"dtype": torch.int32}),
    (aten.full_like.default, (X, 3), {}),
    (aten.ones_like.default, (X,), {"dtype": torch.int8}),
    (aten.new_zeros.default, (X, [4]), {}),
    (aten.new_full.default, (X, [4], 2.5), {}),
    (aten.scalar_tensor.default, (3,), {"dtype": torch.int64}),
    (aten.eye.m, (3, 4), {}),
    (aten.linspace.default, (0, 1, 7), {}),
    (aten.linspace.Tensor_Tensor, (torch.tensor(-3), torch.tensor(4), 50), INT32),
    (aten.linspace.Tensor_Scalar, (torch.tensor(4.5), -3, 7), INT32),
    (aten.linspace.Scalar_Tensor, (-3.5, torch.tensor(-3), 1), INT32),
    (aten.linspace.Tensor_Scalar, (torch.tensor(-1.5), 2, 6), {}),
    (aten.hann_window.default, (8,), {}),
    (aten.tril_indices.default, (3, 4), {}),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), CASES)
def test_creation(compare, op, args, kwargs):
    compare(op, *args, **kwargs)
