"""Sorts and what is made of them: stable, NaN last, both directions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from litert_sweep.case import case

NAN, INF = float("nan"), float("inf")
ODD = torch.tensor([[3.0, NAN, 1, 3, -INF, 0, NAN, 2], [INF, 2, 2, 2, -0.0, 0, 1, NAN]])


def _equals(*shape: int) -> Tensor:
    """Return floats with many equal ones."""
    return torch.randint(-9, 9, shape).float() / 4


def _both(op: Any, x: Tensor, **options: Any) -> list[Tensor]:
    found = [op(x, dim=-1, descending=d, **options) for d in (False, True)]
    return [y for pair in found for y in (pair if isinstance(pair, tuple) else [pair])]


@case("order", quick=True)
def sort() -> Any:
    return lambda x: _both(torch.sort, x, stable=True), _equals(3, 50)


@case("order")
def sort_large() -> Any:
    return lambda x: _both(torch.sort, x, stable=True), torch.randn(2, 1500)


@case("order")
def sort_odd() -> Any:
    """NaN, infinities and both zeros."""

    def both(x: Tensor) -> list[Tensor]:
        y = torch.where(x > -9, ODD, x)
        return [
            *_both(torch.sort, y, stable=True),
            torch.sort(y, dim=0, stable=True)[1],
        ]

    return both, torch.rand(2, 8)


@case("order")
def sort_integers() -> Any:
    def both(x: Tensor) -> list[Tensor]:
        kinds = [x, x * 2**40, x.int(), x.to(torch.int16), x.to(torch.int8), x > 3]
        return [y for k in kinds for y in _both(torch.sort, k, stable=True)]

    return both, torch.randint(-100, 100, (2, 20))


@case("order")
def argsort() -> Any:
    return lambda x: _both(torch.argsort, x, stable=True), _equals(2, 70)


@case("order")
def sort_dims() -> Any:
    def dims(x: Tensor) -> list[Tensor]:
        return [y for d in range(3) for y in torch.sort(x, dim=d, stable=True)]

    return dims, _equals(5, 4, 6)


@case("order")
def topk() -> Any:
    """All k, both ends."""

    def every(x: Tensor) -> list[Tensor]:
        picks = [torch.topk(x, k, largest=b) for k in (1, 7, 40) for b in (True, False)]
        return [y for pair in picks for y in pair]

    return every, torch.randperm(120).reshape(3, 40).float()


@case("order", quick=True)
def topk_large() -> Any:
    return lambda x: torch.topk(x, 300, dim=0), torch.randperm(1000).float()


@case("order")
def kthvalue() -> Any:
    def every(x: Tensor) -> list[Tensor]:
        found = [torch.kthvalue(x, k, dim=1, keepdim=k == 4) for k in (1, 4, 11)]
        return [y for pair in found for y in pair]

    return every, torch.randperm(33).reshape(3, 11).float()


@case("order")
def median() -> Any:
    def every(x: Tensor) -> list[Tensor]:
        return [x.median(), *x.median(0), *x.median(1, keepdim=True), x.nanmedian()]

    return every, torch.randperm(28).reshape(4, 7).float()


@case("order")
def quantile() -> Any:
    return lambda x: (x.quantile(0.3), x.quantile(0.5, dim=1)), torch.randn(3, 9)


@case("order")
def msort_and_mode() -> Any:
    return lambda x: (torch.msort(x), *torch.mode(x, 1)), _equals(6, 9)


@case("order")
def argmax_ties() -> Any:
    def best(x: Tensor) -> list[Tensor]:
        return [x.argmax(1), x.argmin(0), x.argmax(), *x.max(1), *x.min(0)]

    return best, _equals(4, 30)
