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
