"""Fractional pooling, reads under a mask, segments."""

from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten


@pytest.mark.parametrize("output", [(3, 4), (1, 1), (5, 2)])
def test_fractional_max_pool2d(compare, output):
    x, samples = torch.randn(2, 3, 10, 9), torch.rand(2, 3, 2)
    compare(aten.fractional_max_pool2d.default, x, [2, 3], list(output), samples)


@pytest.mark.parametrize(
    ("size", "output"),
    [((6, 7, 8), (3, 2, 4)), ((7, 7, 7), (4, 4, 4)), ((16, 7, 5), (6, 3, 2))],
)
def test_fractional_max_pool3d(compare, size, output):
    x, samples = torch.randn(2, 3, *size), torch.rand(2, 3, 3)
    compare(aten.fractional_max_pool3d.default, x, [2, 2, 2], list(output), samples)
    compare(aten.fractional_max_pool3d.default, x[0], [2, 2, 2], list(output), samples)


def test_masked_read_and_sum(compare):
    x, rows = torch.randn(5, 4), torch.tensor([[0, 9], [-7, 2]])
    columns = torch.tensor([[3, 0], [1, 7]])
    mask = torch.tensor([[True, False], [False, False]])
    indices = [rows, columns]
    compare(aten._unsafe_masked_index.default, x, mask, indices, 0.5)
    values = torch.randn(2, 2)
    op = aten._unsafe_masked_index_put_accumulate.default
    compare(op, x, mask, indices, values)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 1.5])
def test_segments(compare, reduce, initial):
    x, lengths = torch.randn(7, 2), torch.tensor([3, 0, 4])
    compare(
        aten.segment_reduce.default,
        x,
        reduce,
        lengths=lengths,
        initial=initial,
        unsafe=True,
    )
