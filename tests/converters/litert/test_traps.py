"""Ops that LiteRT's converter or kernels have wrong in their common form, in both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tpu_export.converters.stablehlo.ops.sorting import LiteRtUnsupportedError

INF, NAN = float("inf"), float("nan")
X = torch.randn(2, 7)
WHOLE = torch.randint(-9, 9, (2, 7))
ODD = torch.tensor([[3.0, 1, 2, 5, 4, -INF, 0], [NAN, 4, 1, NAN, 0, 3, INF]])
IMAGE = torch.randn(1, 2, 9, 9)
ODD_IMAGE = IMAGE.clone()
ODD_IMAGE[0, 0, 4, 4] = ODD_IMAGE[0, 1, 0, 8] = NAN


@pytest.mark.parametrize(
    "x", [X, ODD, WHOLE, WHOLE * 2**40, WHOLE.int(), WHOLE.to(torch.int8), X > 0]
)
def test_running_sums_and_products(right_in_both: Any, x: Tensor) -> None:
    right_in_both(lambda x: (x.cumsum(1), x.cumsum(0), x.cumprod(1)), x)


@pytest.mark.parametrize("x", [X, WHOLE])
def test_running_extremes(right_in_both: Any, x: Tensor) -> None:
    right_in_both(lambda x: (*torch.cummax(x, 1), *torch.cummin(x, 0)), x)


@pytest.mark.parametrize(
    "x", [X, ODD, torch.randperm(14).reshape(2, 7), torch.arange(14).to(torch.int8)]
)
def test_topk(right_in_both: Any, x: Tensor) -> None:
    def best(x: Tensor) -> tuple[Tensor, ...]:
        return (
            *torch.topk(x, 3, -1),
            *torch.topk(x, 5, -1, largest=False),
            *torch.topk(x, 2, 0),
        )

    right_in_both(best, x.reshape(2, -1))


@pytest.mark.parametrize("x", [ODD, WHOLE * 2**40, WHOLE.to(torch.int8), X > 0])
def test_sorts(right_in_both: Any, x: Tensor) -> None:
    def ordered(x: Tensor) -> list[Tensor]:
        found = [
            torch.sort(x, stable=True, dim=-1, descending=d) for d in (True, False)
        ]
        return [
            *(y for pair in found for y in pair),
            *torch.sort(x, dim=0, stable=True),
        ]

    right_in_both(ordered, x)


def test_large_topk(right_in_both: Any) -> None:
    right_in_both(lambda x: torch.topk(x, 65), torch.randperm(200).reshape(2, 100))


@pytest.mark.parametrize(
    "function", [torch.sort, torch.argsort, torch.msort, lambda x: torch.topk(x, 65)]
)
def test_sorts_of_too_many_are_refused(
    right_in_both: Any, function: Callable[..., Any]
) -> None:
    with pytest.raises(LiteRtUnsupportedError, match="more than the 16777216"):
        right_in_both(function, torch.randn(5000))


def test_one_hot(right_in_both: Any) -> None:
    index = torch.tensor([[0, 2, 2], [5, 1, 0]])
    right_in_both(lambda i: (F.one_hot(i, 6), F.one_hot(i[0, 1], 3)), index)


# kernel, stride, padding; padded on one axis only, the converter's SAME would be too large
WINDOWS = [
    (2, 2, 0),
    (3, 2, 1),
    ((3, 2), (2, 1), (1, 0)),
    ((2, 3), (1, 2), (0, 1)),
    (3, 1, (1, 0)),
]


@pytest.mark.parametrize("ceil", [False, True])
def test_max_pools(right_in_both: Any, ceil: bool) -> None:
    def pools(x: Tensor) -> list[Tensor]:
        settings = [(*w, d) for w in WINDOWS for d in (1, 2)]
        results = [F.max_pool2d(x, *s, ceil_mode=ceil) for s in settings]
        for s in settings:
            results += F.max_pool2d(x, *s, ceil_mode=ceil, return_indices=True)
        return results

    right_in_both(pools, IMAGE)


def test_max_pools_with_indices_keep_nan(right_in_both: Any) -> None:
    def pools(x: Tensor) -> list[Tensor]:
        return [y for w in WINDOWS for y in F.max_pool2d(x, *w, return_indices=True)]

    right_in_both(pools, ODD_IMAGE)


@pytest.mark.parametrize("ceil", [False, True])
def test_average_pools(right_in_both: Any, ceil: bool) -> None:
    def pools(x: Tensor) -> list[Tensor]:
        return [
            F.avg_pool2d(x, *w, ceil_mode=ceil, count_include_pad=include)
            for w in WINDOWS
            for include in (False, True)
        ] + [F.avg_pool2d(x, 3, divisor_override=2, ceil_mode=ceil)]

    right_in_both(pools, IMAGE)


def test_pools_of_sequences_and_volumes(right_in_both: Any) -> None:
    def pools(x: Tensor) -> tuple[Tensor, ...]:
        volume = x[:, :, None].expand(-1, -1, 4, -1, -1)
        return (
            F.max_pool1d(x[0], 3, 2, 1),
            F.avg_pool1d(x[0], 3, 2, 1, ceil_mode=True),
            F.max_pool3d(volume, (2, 3, 2), (1, 2, 1), (0, 1, 0)),
            F.avg_pool3d(volume, 2),
        )

    right_in_both(pools, IMAGE)


@pytest.mark.parametrize(
    "rule",
    [
        "bte,edf,btd->btf",
        "abcd,dcbe->ae",
        "abcd,bdce->ae",
        "abcd,bace->abde",
        "abcd,eabc->ed",
        "abcd,cbad->abcd",
        "abcd,abcd->abcd",
        "abcd,dabe->dabce",
    ],
)
def test_products_over_dimensions_in_another_order(
    right_in_both: Any, rule: str
) -> None:
    """The converter makes one dimension of several without a look at their order."""
    operands = rule.split("->")[0].split(",")
    sizes = dict(zip("abcdeft", (2, 3, 4, 5, 3, 4, 2), strict=True))
    given = [torch.randn(*(sizes[c] for c in names)) for names in operands]
    right_in_both(lambda *xs: torch.einsum(rule, *xs), *given)
