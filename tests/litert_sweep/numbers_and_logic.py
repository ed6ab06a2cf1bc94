"""Integers, booleans, masks, arithmetic that LiteRT lacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from litert_sweep.case import case


@case("integer")
def int64_arithmetic() -> Any:
    def compute(x: Tensor, y: Tensor) -> list[Tensor]:
        z = y.abs() + 1
        return [
            x + y,
            x * y,
            x - 7,
            x // z,
            x % z,
            torch.fmod(x, z),
            -x,
            x.abs(),
            x.sum(),
            x * 2**30,
            x.clamp(-5, 5),
            torch.div(x, z),
        ]

    return compute, torch.randint(-(2**40), 2**40, (9,)), torch.randint(-99, 99, (9,))


@case("integer", quick=True)
def shifts() -> Any:
    def compute(x: Tensor, n: Tensor) -> list[Tensor]:
        found = []
        for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            y, m = x.to(kind), (n % 8).to(kind)
            found += [y << 3, y >> 2, y << m, y >> m]
        return found

    return compute, torch.randint(-100, 100, (20,)), torch.randint(0, 8, (20,))


@case("integer")
def wide_shifts() -> Any:
    def compute(x: Tensor, n: Tensor) -> list[Tensor]:
        return [x << n, x >> n, x << 33, x >> 35, 1 << n]

    high = 2**62
    return compute, torch.randint(-high, high, (40,)), torch.randint(0, 63, (40,))


@case("integer")
def bits() -> Any:
    def compute(x: Tensor, y: Tensor) -> list[Tensor]:
        found = []
        for kind in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
            a, b = x.to(kind), y.to(kind)
            found += [a & b, a | b, a ^ b, ~a, a & 12, a | 3]
        return found

    high = 2**62
    return compute, torch.randint(-high, high, (30,)), torch.randint(-high, high, (30,))


@case("integer")
def logic() -> Any:
    def compute(x: Tensor, y: Tensor) -> list[Tensor]:
        a, b = x > 0, y > 0
        return [
            a & b,
            a | b,
            a ^ b,
            ~a,
            torch.logical_and(x, y),
            a.any(),
            a.all(0),
            a == b,
            a.sum(1),
            torch.logical_xor(a, b),
        ]

    return compute, torch.randn(3, 5), torch.randn(3, 5)


@case("integer")
def masks_made_in_forward() -> Any:
    def compute(x: Tensor) -> list[Tensor]:
        mask = torch.tensor([True, False, True, True, False])
        rows = torch.tensor([2, 0])
        return [x.masked_fill(mask, 0.0), torch.where(mask, x, -x), x[rows] * 2]

    return compute, torch.randn(3, 5)


@case("integer")
def where_and_masks() -> Any:
    def compute(x: Tensor, m: Tensor) -> list[Tensor]:
        seen = torch.ones(5, 5).tril().bool()
        return [
            torch.where(x > 0, x, 0.1 * x),
            x.masked_fill(m > 0, float("-inf")),
            x.masked_fill(~seen, -1e9).softmax(-1),
            torch.where(m > 2, m, -m),
            x.tril(-1),
            x.triu(1),
        ]

    return compute, torch.randn(5, 5), torch.randint(-4, 4, (5, 5))


@case("integer")
def rounding_and_remainders() -> Any:
    def compute(x: Tensor) -> list[Tensor]:
        y = x * 7
        rest = [y.floor(), y.ceil(), y.trunc(), y.round(), y.frac(), y.sign()]
        return [*rest, y % 2.5, torch.fmod(y, 2.5), y.int(), y.long(), y // 3]

    return compute, torch.randn(40)


@case("integer")
def bfloat16_inside() -> Any:
    return lambda x: (x.bfloat16() * 2).float() + x, torch.randint(-9, 9, (8,)).float()


@case("integer")
def float16_inside() -> Any:
    return lambda x: (x.half() * 2).float() + x, torch.randint(-9, 9, (8,)).float()


@case("integer", code="TPX-0601")
def float64_inputs() -> Any:
    return lambda x: x * 2, torch.randn(4).double()


@case("integer", code="TPX-0601")
def float16_inputs() -> Any:
    return lambda x: x * 2, torch.randn(4).half()


@case("integer", code="TPX-0601")
def bfloat16_inputs() -> Any:
    return lambda x: x * 2, torch.randn(4).bfloat16()


@case("refused", code="TPX-0601")
def complex_numbers() -> Any:
    return lambda x: torch.view_as_real(torch.fft.fft(x)), torch.randn(8)


@case("refused", code="TPX-0290")
def unique() -> Any:
    return lambda x: torch.unique(x), torch.randint(0, 4, (9,))


@case("refused", code="TPX-0290")
def nonzero() -> Any:
    return lambda x: torch.nonzero(x), torch.randint(0, 2, (9,))


@case("refused", code="TPX-0601")
def singular_values() -> Any:
    return lambda x: torch.linalg.svdvals(x), torch.randn(3, 3)
