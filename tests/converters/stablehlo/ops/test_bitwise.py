from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
X = torch.tensor([-8, -1, 0, 5, 127])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_logic(compare, name, dtype):
    compare(getattr(aten, name).Tensor, X.to(dtype), X.flip(0).to(dtype))


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts(compare, name, dtype, count):
    compare(getattr(aten, name).Tensor_Scalar, X.to(dtype), count)


@pytest.mark.parametrize("x", [X, X > 0])
def test_not(compare, x):
    compare(aten.bitwise_not.default, x)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool]
)
@pytest.mark.parametrize("dim", [[], [0], [-1]])
def test_hash(compare, dtype, dim):
    x = (torch.randn(3, 4) * 9).to(dtype)
    compare(torch.ops.aten.hash_tensor.default, x, dim, keepdim=bool(dim))
