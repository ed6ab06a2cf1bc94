from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
SDPA = aten.scaled_dot_product_attention.default
TARGETS = ["xla", "litert"]
INF = float("inf")


def r(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


def qkv(batch=(2, 3), length=5, keys=7, width=8, values=8, dtype=torch.float32):
    q, k = r(*batch, length, width, dtype=dtype), r(*batch, keys, width, dtype=dtype)
    return q, k, r(*batch, keys, values, dtype=dtype)


def visible(*shape):
    mask = torch.rand(*shape) > 0.4
    mask[..., 1, :] = False  # one row sees nothing
    return mask


def additive(*shape):
    return torch.where(visible(*shape), torch.randn(*shape), -INF)


CASES = [
    (qkv(), None, {}),
    (qkv(values=4), None, {}),
    (qkv((3,)), None, {}),
    (qkv(()), None, {}),
    (qkv((2, 3, 2)), None, {}),
    (qkv(), None, {"scale": 0.3}),
    (qkv(), None, {"is_causal": True}),
    (qkv(length=7, keys=5), None, {"is_causal": True}),
    (qkv(), visible(5, 7), {}),
    (qkv(), visible(2, 1, 5, 7), {}),
    (qkv(), visible(2, 3, 5, 7), {}),
    (qkv(), torch.rand(2, 1, 1, 7) > 0.3, {}),
    (qkv(), additive(5, 7), {}),
    (qkv(), additive(2, 3, 5, 7), {"scale": 1.5}),
    (qkv(), torch.full((2, 1, 5, 7), torch.finfo(torch.float32).min), {}),
    ((r(2, 6, 5, 8), r(2, 2, 7, 8), r(2, 2, 7, 8)), None, {"enable_gqa": True}),
    (
        (r(2, 6, 5, 8), r(2, 2, 7, 8), r(2, 2, 7, 8)),
        visible(2, 6, 5, 7),
        {"enable_gqa": True},
    ),
    (
        (r(2, 6, 5, 8), r(2, 2, 7, 8), r(2, 2, 7, 8)),
        visible(2, 1, 5, 7),
        {"enable_gqa": True},
    ),
    (
        (r(2, 6, 5, 8), r(2, 2, 5, 8), r(2, 2, 5, 8)),
        None,
        {"enable_gqa": True, "is_causal": True},
    ),
    ((r(2, 3, 5, 8), r(1, 3, 7, 8), r(1, 3, 7, 8)), None, {}),
    (qkv(length=1, keys=1), None, {}),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("tensors", "mask", "kwargs"), CASES)
def test_attention(compare, tensors, mask, kwargs, target):
    compare(SDPA, *tensors, mask, tol=(1e-4, 1e-5), target=target, **kwargs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_dtypes(compare, dtype, is_causal):
    tol = (1e-5, 1e-6) if dtype == torch.float64 else (2e-2, 2e-2)
    compare(SDPA, *qkv(dtype=dtype), is_causal=is_causal, tol=tol)


@pytest.mark.parametrize("is_causal", [True, False])
def test_flash_for_cpu(compare, is_causal):
    op = aten._scaled_dot_product_flash_attention_for_cpu.default
    compare(op, *qkv(length=7), 0.0, is_causal, tol=(1e-4, 1e-5))
    if not is_causal:
        compare(op, *qkv(), attn_mask=r(5, 7), scale=0.2, tol=(1e-4, 1e-5))
