"""Dynamic dimensions: one capture, right at every size of its ranges."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

B, T, S = Dim("b", max=64), Dim("t", max=64), Dim("s", max=64)
N = Dim("n", min=2, max=64)
AUTO, DYNAMIC = Dim.AUTO, Dim.DYNAMIC
TWO = ({0: B, 1: T},)
TWO_CALLS = ((4, 6), (1, 1), (3, 9), (5, 2))

TABLE: dict[str, tuple[Any, ...]] = {
    "dims: two": (lambda x: x * x.shape[0] + x.sum(1, keepdim=True), TWO, *TWO_CALLS),
    "dims: three": (
        lambda x: x.transpose(0, 2) / (x.shape[0] + x.shape[1] * x.shape[2]),
        {0: B, 1: T, 2: S}, (2, 3, 4), (1, 1, 1), (4, 1, 3), (3, 5, 2),
    ),
    "dims: shared": (
        lambda x, y: x @ y.T + y.shape[0], ({0: B, 1: T}, {0: S, 1: T}),
        ((2, 3), (4, 3)), ((5, 1), (1, 1)), ((1, 7), (2, 7)),
    ),
    "dims: shared, both": (
        lambda x, y: x + y.mT, ({0: B, 1: T}, {0: T, 1: B}),
        ((2, 3), (3, 2)), ((5, 1), (1, 5)), ((7, 7), (7, 7)),
    ),
    "dims: twice": (
        lambda x, y: torch.cat([x, x]) + y, ({0: B}, {0: 2 * B}),
        ((3, 2), (6, 2)), ((1, 2), (2, 2)), ((7, 2), (14, 2)),
    ),
    "dims: one less": (
        lambda x, y: x[1:] - x[:-1] + y, ({0: N}, {0: N - 1}),
        ((3, 2), (2, 2)), ((2, 2), (1, 2)), ((9, 2), (8, 2)),
    ),
    "dims: twice and one": (
        lambda x, y: (x * 2, y[::2][1:] + x, y[1::2]), ({0: B}, {0: 2 * B + 1}),
        ((3, 2), (7, 2)), ((1, 2), (3, 2)), ((8, 2), (17, 2)),
    ),
    "dims: sum": (
        lambda x, y: torch.cat([x, y]).softmax(0), ({0: B}, {0: T}),
        ((3, 2), (4, 2)), ((1, 2), (1, 2)), ((6, 2), (2, 2)),
    ),
    "dims: auto": (
        lambda x: x.reshape(-1).cumsum(0), {0: AUTO, 1: AUTO}, (4, 6), (2, 2), (3, 9)
    ),
    "dims: auto finds what is static": (
        lambda x: x @ torch.ones(6, 3), {0: AUTO, 1: AUTO}, (4, 6), (2, 6), (9, 6)
    ),
    "dims: auto finds what is equal": (
        lambda x, y: x + y, ({0: AUTO}, {0: AUTO}),
        ((4, 2), (4, 2)), ((2, 2), (2, 2)), ((9, 2), (9, 2)),
    ),
    "dims: dynamic": (
        lambda x: x.flatten() + x.shape[0], {0: DYNAMIC, 1: DYNAMIC}, *TWO_CALLS[:1],
        (3, 9), (5, 2),
    ),
    "dims: range": (
        lambda x: x[:, -3:] + x[:, :3], {1: Dim("n", min=4, max=9)},
        (2, 5), (2, 4), (2, 9),
    ),
    "dims: a number": (
        lambda x: (x.shape[0], x.numel() * 2, x.shape[1] // 2, x.shape[0] % 3), TWO,
        *TWO_CALLS,
    ),
    "dims: numbers in floats": (
        lambda x: x * (x.shape[0] ** -0.5) + x.shape[1] / 3, TWO,
        *TWO_CALLS,
    ),
    "dims: tensors of numbers": (
        lambda x: (
            torch.tensor(x.shape[0]) + x.sum(), torch.tensor([x.shape[0], x.shape[1]]),
            torch.full((2,), x.shape[1]), torch.scalar_tensor(x.shape[0]),
        ), TWO, *TWO_CALLS,
    ),
    "dims: smaller and larger": (
        lambda x: (x[: min(x.shape[0], 3)], x.new_ones(max(x.shape[1], 4))), TWO,
        *TWO_CALLS,
    ),
    "shapes: view(b, -1)": (
        lambda x: x.view(x.shape[0], -1), {0: B, 1: T}, (2, 3, 4), (1, 1, 4), (5, 2, 4)
    ),
    "shapes: view(b * t, c)": (
        lambda x: x.view(x.shape[0] * x.shape[1], 4) @ torch.ones(4, 2),
        {0: B, 1: T}, (2, 3, 4), (1, 1, 4), (5, 2, 4),
    ),
    "shapes: flatten and back": (
        lambda x: x.flatten(0, 1).unflatten(0, (x.shape[0], x.shape[1])) + 1,
        {0: B, 1: T}, (2, 3, 4), (1, 1, 4), (5, 2, 4),
    ),
    "shapes: heads": (
        lambda x: x.unflatten(-1, (2, -1)).transpose(1, 2).reshape(-1, x.shape[1], 2),
        {0: B, 1: T}, (2, 3, 4), (1, 1, 4), (5, 2, 4),
    ),
    "shapes: halves": (
        lambda x: x.view(x.shape[0] // 2, 2, -1).sum(1), {0: 2 * B},
        (6, 3), (2, 3), (14, 3),
    ),
    "shapes: squeezed": (
        lambda x: (x.unsqueeze(1).squeeze(1), x[:, None].expand(-1, 3, -1)), TWO,
        *TWO_CALLS,
    ),
    "shapes: as_strided views": (
        lambda x: (x.movedim(0, 1), x.T.contiguous().view(-1), x.diagonal()), TWO,
        *TWO_CALLS,
    ),
    "shapes: meshgrid": (
        lambda x: torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]),
                                 indexing="ij"), TWO, *TWO_CALLS,
    ),
    "created: arange": (
        lambda x: x + torch.arange(x.shape[1]) + torch.arange(1, x.shape[1] + 1),
        TWO, *TWO_CALLS,
    ),
    "created: arange by steps": (
        lambda x: (torch.arange(0, 2 * x.shape[1], 2), torch.arange(0, x.shape[1], 2),
                   torch.arange(x.shape[1] - 1, -1, -1, dtype=torch.float32)),
        TWO, *TWO_CALLS,
    ),
    "created: arange of a float": (
        lambda x: torch.arange(x.shape[1], dtype=torch.float32) / x.shape[1], TWO,
        *TWO_CALLS,
    ),
    "created: filled": (
        lambda x: (torch.zeros(x.shape[1], 2), torch.ones_like(x), x.new_zeros(x.shape),
                   torch.full((x.shape[0], 1), 2.5), torch.eye(x.shape[1])),
        TWO, *TWO_CALLS,
    ),
    "created: causal mask": (
        lambda x: x.masked_fill(
            torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1), -1e9
        ).softmax(-1), {0: B, 1: T, 2: T}, (2, 3, 3), (1, 1, 1), (2, 7, 7),
    ),
    "created: causal mask of positions": (
        lambda x: torch.where(
            torch.arange(x.shape[1])[:, None] >= torch.arange(x.shape[1]), x, -9.0
        ), {0: B, 1: T, 2: T}, (2, 3, 3), (1, 1, 1), (2, 7, 7),
    ),
    "created: tril": (lambda x: (x.tril(), x.triu(-1), x.tril(2)), TWO, *TWO_CALLS),
    "created: padding mask": (
        lambda x, n: x * (torch.arange(x.shape[1]) < n[:, None].abs() * 3),
        ({0: B, 1: T}, {0: B}), ((2, 3), (2,)), ((1, 1), (1,)), ((4, 8), (4,)),
    ),
    "created: one hot": (
        lambda x: F.one_hot(x.argmax(1), 6), {0: B}, (4, 6), (1, 6), (7, 6)
    ),
    "created: where": (
        lambda x: (torch.where(x > 0, x, x.shape[1]), x.clamp(max=x.shape[0] / 4)), TWO,
        *TWO_CALLS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_every_size(name: str, check_sizes: Any) -> None:
    check_sizes(*TABLE[name])
