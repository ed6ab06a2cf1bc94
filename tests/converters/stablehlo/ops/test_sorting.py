from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

X = torch.tensor([[3.0, 1, 2, 1, 3, -INF], [NAN, 4, 1, NAN, 0, 4]])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("x", [X, X.nan_to_num(7).long()])
@pytest.mark.parametrize("dim", [0, 1])
def test_stable_sort(compare, x, dim, descending):
    compare(aten.sort.stable, x, stable=True, dim=dim, descending=descending)


@pytest.mark.parametrize("target", ["xla", "litert"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("x", [torch.randn(3, 9), torch.randperm(9)])
def test_topk(compare, x, largest, target):
    compare(aten.topk.default, x, 4, -1, largest, target=target)


@pytest.mark.parametrize("op", [aten.median.dim, aten.nanmedian.dim, aten.mode.default])
def test_middles(compare, op):
    compare(op, torch.tensor([[3.0, 1, 2, 7], [5, 4, 4, 0]]), 1)


def test_kthvalue(compare):
    compare(aten.kthvalue.default, torch.randn(3, 7), 3)


@pytest.mark.parametrize("target", ["xla", "litert"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nan_is_the_largest(compare, dtype, largest, target):
    x = torch.tensor([[3.0, NAN, 1, 2], [INF, -INF, -NAN, 0], [4, 5, -6, 7]])
    compare(aten.topk.default, x.to(dtype), 2, -1, largest, target=target)
    compare(aten.topk.default, x.to(dtype), 2, 0, largest, target=target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nan_in_order(compare, dtype):
    x = torch.tensor([[3.0, NAN, 1, 2], [INF, -INF, -NAN, 0], [4, 5, -6, 7]]).to(dtype)
    compare(aten.sort.stable, x, stable=True)
    for k in (1, 4):
        compare(aten.kthvalue.default, x, k)
    for op in (aten.median, aten.nanmedian):
        compare(op.dim, x, 1)
        compare(op.default, x)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8]
)
def test_median_of_nothing(compare, dtype):
    for op in (aten.median.default, aten.nanmedian.default):
        compare(op, torch.empty(0, 3, dtype=dtype))
