from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
BF16 = torch.bfloat16


def r(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


# x, kernel, stride, padding, dilation, ceil_mode
MAX = [
    (1, r(2, 3, 10), [3], [], [0], [1], False),
    (1, r(3, 10), [3], [2], [1], [2], True),
    (2, r(2, 3, 17, 17), [2, 2], [2, 2], [1, 1], [1, 1], True),
    (2, r(2, 3, 9, 8), [3, 2], [2, 3], [1, 0], [1, 1], False),
    (2, r(2, 3, 9, 8), [3, 2], [2, 3], [1, 1], [2, 1], True),
    (2, r(3, 9, 8), [3], [2], [0], [1], True),
    (2, r(1, 2, 6, 6, dtype=BF16), [2, 2], [], [0, 0], [1, 1], False),
    (2, torch.randint(-9, 9, (1, 2, 6, 6)), [2, 2], [], [0, 0], [1, 1], False),
    (2, torch.zeros(1, 2, 6, 6), [3, 3], [], [1, 1], [1, 1], False),
    (3, r(2, 3, 5, 6, 7), [2, 3, 2], [2, 2, 2], [1, 1, 0], [1, 1, 2], True),
]


def op(name, rank):
    return getattr(aten, name.format(rank)).default


@pytest.mark.parametrize(
    ("rank", "x", "kernel", "stride", "padding", "dilation", "ceil"), MAX
)
def test_max_pool(compare, rank, x, kernel, stride, padding, dilation, ceil):
    args = (x, kernel, stride, padding, dilation, ceil)
    for target in ("xla", "litert"):
        compare(op("max_pool{}d", rank), *args, target=target)
        compare(op("max_pool{}d_with_indices", rank), *args, target=target)


@pytest.mark.parametrize("target", ["xla", "litert"])
def test_of_several_nan_the_last_counts(compare, target):
    x = torch.where(torch.rand(2, 3, 9, 8) < 0.3, torch.nan, r(2, 3, 9, 8))
    args = ([3, 2], [2, 1], [1, 0])
    compare(aten.max_pool2d_with_indices.default, x, *args, target=target)
    compare(aten.max_pool2d_with_indices.default, x * torch.nan, *args, target=target)
    compare(aten.adaptive_max_pool2d.default, x, [3, 5], target=target)


# x, kernel, stride, padding, ceil_mode, count_include_pad
AVG = [
    (1, r(2, 3, 10), [3], [], [0], False, True),
    (1, r(3, 10), [3], [2], [1], True, False),
    (2, r(2, 3, 17, 17), [2, 2], [2, 2], [1, 1], True, True),
    (2, r(2, 3, 17, 17), [3, 2], [2, 2], [1, 1], True, False),
    (2, r(2, 3, 9, 8), [3, 3], [2, 2], [1, 1], False, True),
    (2, r(2, 3, 9, 8), [3, 3], [2, 2], [1, 1], False, False),
    (2, r(2, 3, 10, 11), [3, 3], [4, 4], [0, 0], True, True),
    (2, r(3, 9, 8), [3], [], [0], True, True),
    (2, r(1, 2, 6, 6, dtype=BF16), [2, 2], [], [0, 0], False, True),
    (3, r(2, 3, 5, 6, 7), [2, 3, 2], [2, 2, 2], [1, 1, 0], True, False),
    (3, r(2, 3, 5, 6, 7), [2, 2, 2], [], [0, 0, 0], False, True),
]


@pytest.mark.parametrize(
    ("rank", "x", "kernel", "stride", "padding", "ceil", "include"), AVG
)
def test_avg_pool(compare, rank, x, kernel, stride, padding, ceil, include):
    compare(op("avg_pool{}d", rank), x, kernel, stride, padding, ceil, include)
    args = (x, kernel, stride, padding, ceil, include)
    compare(op("avg_pool{}d", rank), *args, target="litert")
    if rank > 1:
        args = (x, kernel, stride, padding, ceil, include, 5)
        compare(op("avg_pool{}d", rank), *args)
