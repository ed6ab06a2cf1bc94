"""Writes by index and look-ups in tables, in both engines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

INF, NAN = float("inf"), float("nan")
X = torch.randn(4, 5)
CUBE = torch.randn(2, 4, 3)
INDEX = torch.tensor([[0, 2, 0], [3, 3, 1]])
TWICE = torch.tensor([1, 1, -2])


def test_scatters(right_in_both: Any) -> None:
    def write(x: Tensor, index: Tensor, src: Tensor) -> tuple[Tensor, ...]:
        return (
            x.scatter_add(0, index, src),
            x.scatter(1, index[:, :2], src),
            x.scatter(0, index, 2.5),
            x.scatter_reduce(0, index, src, "mean"),
            x.scatter_reduce(0, index, src, "amax", include_self=False),
            x.scatter_reduce(0, index, src, "prod"),
        )

    right_in_both(write, X, INDEX, torch.randn(2, 3))


def test_rows(right_in_both: Any) -> None:
    def write(x: Tensor, index: Tensor, src: Tensor) -> tuple[Tensor, ...]:
        return (
            x.index_add(1, torch.where(index < 0, index + 4, index), src, alpha=2),
            x.index_copy(1, torch.tensor([0, 2, 1]), src),
            x.index_fill(1, index, 7.0),
            x[0].index_put((index,), src[0]),
            x[0].index_put((index,), src[0], accumulate=True),
            x[0].index_put((index, index), src[0, 0], accumulate=True),
            torch.ops.aten.index_put(x, [index * 0, None, index], src[0, 0, :1], True),
            x.put(index, src[0, 0], accumulate=True),
        )

    right_in_both(write, CUBE, TWICE, torch.randn(2, 3, 3))


def test_parts(right_in_both: Any) -> None:
    def write(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y, z = x.clone(), x.clone()
        y[:, ::2] = x[:, :3] * 2
        z.diagonal().fill_(3.0)
        return y, z, x.masked_scatter(mask, x.flip(0)), x.index_put((mask,), x[0, 0])

    right_in_both(write, X, X > 0)


def test_infinities_stay_in_their_place(right_in_both: Any) -> None:
    def write(x: Tensor, index: Tensor, src: Tensor) -> tuple[Tensor, ...]:
        return (
            x.scatter_add(0, index, src),
            x[0].index_add(0, index[0], src[0]),
            x.scatter_reduce(0, index, src, "amax"),
            x.scatter_reduce(0, index, src, "amin"),
        )

    x = torch.tensor([[1.0, NAN, 2], [-INF, 3, 4], [5, 6, INF], [7, 8, 9]])
    right_in_both(write, x, INDEX, torch.tensor([[INF, 1, -INF], [NAN, INF, 2]]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integers_are_exact(right_in_both: Any, dtype: torch.dtype) -> None:
    def write(x: Tensor, index: Tensor, src: Tensor) -> tuple[Tensor, ...]:
        return (
            x.scatter_add(0, index, src),
            x.scatter(0, index, src),
            x.index_put((index[0],), src[0, 0], accumulate=True),
        )

    high = min(torch.iinfo(dtype).max, 2**60)  # sums wrap in the narrow ones
    x = torch.randint(0, high, (4, 3)).to(dtype)
    right_in_both(write, x, INDEX, x[1:3].clone())


def test_booleans(right_in_both: Any) -> None:
    def write(x: Tensor, index: Tensor) -> tuple[Tensor, ...]:
        return x.scatter(0, index, value=True), x.scatter_add(0, index, x[:2, :3])

    right_in_both(write, X > 0, INDEX)


def test_tables(right_in_both: Any) -> None:
    table = torch.randn(7, 4)

    def look_up(index: Tensor, offsets: Tensor) -> tuple[Tensor, ...]:
        flat = index.reshape(-1)
        bags = [
            F.embedding_bag(flat, table, offsets, mode=mode)
            for mode in ("sum", "mean", "max")
        ]
        return F.embedding(index, table, padding_idx=2), F.one_hot(index, 7), *bags

    right_in_both(look_up, INDEX, torch.tensor([0, 2, 2]))
