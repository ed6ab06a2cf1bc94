from __future__ import annotations

import pytest
import torch

q = torch.ops.quantized_decomposed
X = torch.randn(3, 8, 4) * 3
INT8 = (-128, 127, torch.int8)


@pytest.mark.parametrize("zero", [0, 3, -7])
@pytest.mark.parametrize(
    ("low", "high", "dtype"), [INT8, (0, 255, torch.uint8), (-8, 7, torch.int8)]
)
def test_per_tensor(compare, zero, low, high, dtype):
    rest = (0.05, abs(zero) if low == 0 else zero, low, high, dtype)
    compare(q.quantize_per_tensor.default, X, *rest)
    compare(
        q.dequantize_per_tensor.default, q.quantize_per_tensor.default(X, *rest), *rest
    )
    tensors = (torch.tensor(rest[0]), torch.tensor(rest[1]), *rest[2:])
    compare(q.quantize_per_tensor.tensor, X, *tensors)
    y = q.quantize_per_tensor.tensor(X, *tensors)
    compare(q.dequantize_per_tensor.tensor, y, *tensors)


def test_rounds_half_to_even(compare):
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1000.0])
    compare(q.quantize_per_tensor.default, x, 1.0, 1, *INT8)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(compare, axis):
    n = X.shape[axis]
    scales, zeros = torch.rand(n) + 0.01, torch.randint(-5, 5, (n,))
    compare(q.quantize_per_channel.default, X, scales, zeros, axis, *INT8)
    y = q.quantize_per_channel.default(X, scales, zeros, axis, *INT8)
    compare(q.dequantize_per_channel.default, y, scales, zeros, axis, *INT8)
    compare(q.dequantize_per_channel.default, y, scales, None, axis, *INT8)


def test_per_token(compare):
    scales, zeros = torch.rand(3, 8, 1) + 0.01, torch.randint(-5, 5, (3, 8, 1))
    compare(q.quantize_per_token.default, X, scales, zeros, *INT8)
    y = q.quantize_per_token.default(X, scales, zeros, *INT8)
    compare(q.dequantize_per_token.default, y, scales, zeros, *INT8, torch.float32)
