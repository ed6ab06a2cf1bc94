"""Writes by index; blocks taken apart and summed."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from litert_sweep.case import case


def _where(*shape: int, high: int) -> Tensor:
    return torch.randint(0, high, shape)


@case("write")
def scatter() -> Any:
    def write(x: Tensor, index: Tensor, src: Tensor) -> list[Tensor]:
        return [x.scatter(0, index, src), x.scatter(1, index % 3, 2.0)]

    columns = torch.stack([torch.randperm(5)[:3] for _ in range(4)], 1)
    return write, torch.randn(5, 4), columns, torch.randn(3, 4)


@case("write", quick=True)
def scatter_add() -> Any:
    def write(x: Tensor, index: Tensor, src: Tensor) -> list[Tensor]:
        return [x.scatter_add(0, index, src), x.long().scatter_add(1, index % 4, index)]

    return write, torch.randn(5, 4), _where(3, 4, high=5), torch.randn(3, 4)


@case("write")
def scatter_reduce() -> Any:
    def write(x: Tensor, index: Tensor, src: Tensor) -> list[Tensor]:
        kinds = ("sum", "prod", "mean", "amax", "amin")
        options = [(k, own) for k in kinds for own in (True, False)]
        return [x.scatter_reduce(0, index, src, k, include_self=o) for k, o in options]

    return write, torch.randn(5, 4), _where(6, 4, high=5), torch.randn(6, 4)


@case("write")
def index_put() -> Any:
    def write(x: Tensor, index: Tensor, values: Tensor) -> list[Tensor]:
        y = x.clone()
        y[x > 0.5] = 0.0
        y[:, 1] = values[:, 0]
        distinct = torch.tensor([3, 0, 2])
        return [
            y,
            x.index_put((index,), values, accumulate=True),
            x.index_put((distinct,), values[:3]),
        ]

    return write, torch.randn(5, 4), _where(5, high=5), torch.randn(5, 4)


@case("write")
def index_add_copy_fill() -> Any:
    def write(x: Tensor, index: Tensor, values: Tensor) -> list[Tensor]:
        return [
            x.index_add(0, index, values, alpha=2),
            x.index_copy(1, torch.tensor([2, 0]), values[:, :2]),
            x.index_fill(0, index, 3.0),
        ]

    return write, torch.randn(5, 4), _where(5, high=5), torch.randn(5, 4)


@case("write")
def fold() -> Any:
    def blocks(x: Tensor) -> list[Tensor]:
        columns = F.unfold(x, 3, dilation=2, padding=1, stride=(2, 1))
        rest = {"dilation": 2, "padding": 1, "stride": (2, 1)}
        return [columns, F.fold(columns, (9, 8), 3, **rest), F.fold(x[0], (4, 6), 3)]

    return blocks, torch.randn(1, 2, 9, 8)


@case("write")
def fold_and_unfold_axis() -> Any:
    return lambda x: (x.unfold(1, 4, 2), F.unfold(x[:, None], (1, 3))), torch.randn(
        3, 11, 5
    )


@case("write")
def gathers() -> Any:
    def read(x: Tensor, index: Tensor) -> list[Tensor]:
        return [
            x.gather(0, index),
            x[index[0]],
            x[:, index[0] % 4],
            x[index, index % 4],
            x.index_select(1, index[0] % 4),
            torch.take_along_dim(x, index, 0),
            x.take(index),
        ]

    return read, torch.randn(5, 4), _where(3, 4, high=5)


@case("write")
def one_hot() -> Any:
    return lambda i: (F.one_hot(i, 7), F.one_hot(i[0], 9).float()), _where(3, 5, high=7)


@case("write", code="TPX-0290")
def bincount() -> Any:
    return lambda i: torch.bincount(i, minlength=8)[:8], _where(30, high=8)


@case("write")
def histc() -> Any:
    def count(x: Tensor) -> list[Tensor]:
        return [
            torch.histc(x, 5, -2.0, 2.0),
            torch.histc(x, 7),
            torch.histc(x.round(), 3, 0, 2),
        ]

    return count, torch.randn(40)
