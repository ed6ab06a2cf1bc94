from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
q = torch.ops.quantized_decomposed
X = torch.randn(3, 8, 4) * 3
INT8 = (-128, 127)


@pytest.mark.parametrize("x", [X, X.double(), X.half()])
@pytest.mark.parametrize("zero", [0, 5, -9])
def test_per_tensor(compare, x, zero):
    compare(aten.fake_quantize_per_tensor_affine.default, x, 0.03, zero, *INT8)
    op = aten.fake_quantize_per_tensor_affine_cachemask.default
    compare(op, x, 0.01, zero, *INT8)
    tensors = (torch.tensor([0.03]), torch.tensor([zero], dtype=torch.int32))
    op = aten.fake_quantize_per_tensor_affine.tensor_qparams
    compare(op, x, *tensors, *INT8)
    for on in (0, 1):
        op = aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default
        compare(op, x, *tensors, torch.tensor([on]), *INT8)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", [torch.int32, torch.float32])
def test_per_channel(compare, axis, kind):
    n = X.shape[axis]
    scales, zeros = torch.rand(n) * 0.05 + 0.01, torch.randint(-5, 5, (n,))
    rest = (scales, zeros.to(kind), axis, *INT8)
    compare(aten.fake_quantize_per_channel_affine.default, X, *rest)
    compare(aten.fake_quantize_per_channel_affine_cachemask.default, X, *rest)
    if kind is torch.int32:
        compare(q.fake_quant_per_channel.default, X, *rest)
