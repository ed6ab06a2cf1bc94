"""Integers and booleans of every width, in both engines: few of them have kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tpu_export.converters.litert import LiteRtModel

FAR = [2**62 + 12345, -(2**62) - 7, 2**63 - 1, -(2**63) + 1, -(2**63), 2**40]
X = torch.cat(
    [
        torch.tensor([-7, -3, -1, 0, 3, 7, 99, -99, *FAR]),
        torch.randint(-(2**62), 2**62, (99,)),
        torch.randint(-1000, 1000, (99,)),
    ]
)
Y = torch.where(X % 3 == 0, X.flip(0) // 2**30, X.flip(0))
WIDTHS = [torch.int64, torch.int32, torch.int16, torch.int8]


@pytest.mark.parametrize("dtype", WIDTHS)
def test_quotients_and_remainders(right_in_both: Any, dtype: torch.dtype) -> None:
    high = 2**62 if dtype == torch.int64 else 100

    def divided(x: Tensor, y: Tensor) -> list[Tensor]:
        y = y.clamp(1, high)
        parts = [torch.div(x, y, rounding_mode=m) for m in ("trunc", "floor")]
        rest = [torch.fmod(x, y), torch.remainder(x, -y), x % 4, x % -7]
        return [*parts, *rest, torch.fmod(x, 4), x // 4, x // -7, -5 // y]

    right_in_both(divided, X.to(dtype), Y.to(dtype))


@pytest.mark.parametrize("dtype", [*WIDTHS, torch.uint8])
def test_arithmetic_of_each_width(right_in_both: Any, dtype: torch.dtype) -> None:
    def computed(x: Tensor, y: Tensor) -> list[Tensor]:
        signed = [] if dtype == torch.uint8 else [x.abs(), -x]
        return [
            *(x + y, x * y - y, x.sign(), x.amax(), x.clamp(1, 9), x == y, x >= 3),
            *(torch.where(x < y, x, y), torch.maximum(x, y), x.flip(0), *signed),
        ]

    right_in_both(computed, X.to(dtype), Y.to(dtype))


def test_remainders_of_floats(right_in_both: Any) -> None:
    x = torch.tensor([-7.5, -3, 0, 3, 7.25, 1e-8, -1e-8, 100.1])
    y = torch.tensor([2, -2, 1.5, -1.5, 4, 3, 3, -0.7])
    right_in_both(lambda x, y: (torch.fmod(x, y), torch.remainder(x, y)), x, y)


def test_booleans(right_in_both: Any) -> None:
    def compared(x: Tensor, y: Tensor) -> list[Tensor]:
        pairs = [x ^ y, x < y, x <= y, x > y, x >= y, x != y, x & ~y, x | y]
        return [*pairs, torch.maximum(x, y), torch.minimum(x, y), x.all(), x.any(0)]

    x = torch.tensor([True, False, True, False])
    right_in_both(compared, x, torch.tensor([True, True, False, False]))


def test_branches(right_in_both: Any) -> None:
    def chosen(x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, torch.fmod, lambda x, y: x // 4, (x, y + 9))

    model: LiteRtModel = right_in_both(chosen, X[:8], X[:8].abs())
    assert "IF" in model.report.ops["forward"]


def test_results_of_branches_and_constants(right_in_both: Any) -> None:
    first, second = torch.nn.Linear(12, 3), torch.nn.Linear(12, 3)
    weights = [*first.parameters(), *second.parameters()]
    for weight in weights:
        weight.requires_grad_(False)

    def chosen(x: Tensor, whole: Tensor) -> list[Tensor]:
        y = torch.cond(x.mean() > 0.5, first.forward, lambda x: second(x) - 1, (x,))
        anchors = torch.arange(4, dtype=whole.dtype)
        return [y, anchors, anchors.float(), whole * 2, anchors]

    right_in_both(chosen, torch.randn(1, 12), X[:4])


def test_unsigned_weights(right_in_both: Any) -> None:
    weight = torch.randint(0, 256, (64, 80), dtype=torch.uint8)

    def product(x: Tensor) -> Tensor:
        return x @ (weight.float() - 128).T

    right_in_both(product, torch.randn(3, 80))


@pytest.mark.parametrize("dtype", [*WIDTHS, torch.uint8])
def test_bits_and_shifts(right_in_both: Any, dtype: torch.dtype) -> None:
    def computed(x: Tensor, y: Tensor) -> list[Tensor]:
        counts = (y % 8).abs()
        return [x & y, x | y, x ^ y, ~x, x << counts, x >> counts, x << 3, x >> 7]

    right_in_both(computed, X.to(dtype), Y.to(dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_shifts_by_the_width(right_in_both: Any, dtype: torch.dtype) -> None:
    counts = torch.arange(torch.iinfo(dtype).bits, dtype=dtype)

    def computed(x: Tensor, n: Tensor) -> list[Tensor]:
        return [y for v in (x[:1], x[1:2], x[8:9]) for y in (v << n, v >> n)]

    right_in_both(computed, X.to(dtype), counts)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.uint32])
def test_moves_of_types_that_few_kernels_have(
    right_in_both: Any, dtype: torch.dtype
) -> None:
    def moved(x: Tensor) -> list[Tensor]:
        parts = [x[:, 1:2], x[:, ::2], x.flip(1), x.roll(1, 2), torch.stack([x, x])]
        return [
            x.permute(2, 0, 1),
            x[:, torch.tensor([2, 0])],
            x.mT.reshape(-1),
            *parts,
        ]

    right_in_both(moved, torch.arange(40_000, 40_024).reshape(2, 3, 4).to(dtype))


def test_int16_in_reach_of_broadcasts(right_in_both: Any) -> None:
    def spread(x: Tensor) -> list[Tensor]:
        return [x[:, :1].expand(-1, 4, -1), torch.where(x > 3, x, x[:, :1])]

    right_in_both(spread, torch.arange(-9, 15).reshape(2, 3, 4).to(torch.int16))
