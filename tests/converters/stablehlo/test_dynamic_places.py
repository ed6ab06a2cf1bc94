"""Dynamic dimensions of what moves, reduces and indexes: right at every size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

B, T, S = Dim("b", max=64), Dim("t", max=64), Dim("s", max=64)
L = Dim("l", min=8, max=64)  # of windows
TWO = ({0: B, 1: T},)
TWO_CALLS = ((4, 6), (1, 1), (3, 9), (5, 2))


def rows(x: Tensor) -> Tensor:
    """Return the numbers of the rows, as integers."""
    return torch.arange(x.shape[0])


TABLE: dict[str, tuple[Any, ...]] = {
    "moved: expand": (
        lambda x: (x.mean(1, keepdim=True).expand_as(x), x[0].expand(x.shape[0], -1)),
        TWO, *TWO_CALLS,
    ),
    "moved: repeat and tile": (
        lambda x: (x.repeat(2, 1), x[:, :1].repeat(1, x.shape[0]), x.tile(2),
                   x.repeat_interleave(2, 1), x.repeat_interleave(x.shape[0], 0)),
        TWO, *TWO_CALLS,
    ),
    "moved: pad to the other dim": (
        lambda x: (F.pad(x, (0, x.shape[0])), F.pad(x, (x.shape[1], 1, 2, 0), value=3.0)),
        TWO, *TWO_CALLS,
    ),
    "moved: pad to a size": (
        lambda x: F.pad(x, (0, 64 - x.shape[1])), {1: T}, (2, 6), (2, 64), (2, 1)
    ),
    "moved: pad or crop to a size": (
        lambda x: F.pad(x, (1, 8 - x.shape[1])), {1: T}, (2, 6), (2, 64), (2, 8), (2, 9)
    ),
    "moved: crop, and pad or crop": (
        lambda x: F.pad(x, (-1, 8 - x.shape[1]), value=2.0), {1: T}, (2, 6), (2, 64), (2, 9)
    ),
    "moved: pad to a multiple": (
        lambda x: (
            F.pad(x, (0, -x.shape[1] % 4)).exp(),
            F.pad(x, (0, (x.shape[1] + 3) // 4 * 4 - x.shape[1])).unflatten(1, (-1, 4)),
        ), {1: Dim("n", max=32)}, (2, 6), (2, 8), (2, 1), (2, 31),
    ),
    "moved: reflect": (
        lambda x: (F.pad(x, (2, 2), mode="reflect"), F.pad(x, (1, 3), mode="replicate"),
                   F.pad(x, (2, 1), mode="circular")),
        {0: B, 2: L}, (2, 3, 9), (1, 3, 8), (2, 3, 17),
    ),
    "moved: slices": (
        lambda x: (x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :], x[:, -1], x[:, :-1],
                   x[-1], x[:, ::2], x[:, 1::3]),
        {0: B, 1: Dim("n", min=4, max=64)}, (4, 6), (1, 4), (3, 9),
    ),
    "moved: narrow": (
        lambda x: (x.narrow(1, 1, x.shape[1] - 1), x.narrow(0, 0, 1), x.select(1, -2)),
        {0: B, 1: Dim("n", min=4, max=64)}, (4, 6), (1, 4), (3, 9),
    ),
    "moved: chunk and split": (
        lambda x: (*x.chunk(2, 1), *x.split(x.shape[1] // 2, 1), *x.tensor_split(2, 1)),
        {0: B, 1: 2 * T}, (4, 6), (1, 2), (3, 10),
    ),
    "moved: unbind": (lambda x: x.unbind(1), {0: B}, (4, 3), (1, 3), (6, 3)),
    "moved: roll and flip": (
        lambda x: (x.roll(1, 1), x.roll(-2, 0), x.roll((1, 1), (0, 1)), x.flip(0, 1),
                   x.roll(x.shape[0], 1), x.roll(1), x.rot90()),
        TWO, *TWO_CALLS,
    ),
    "moved: stack": (
        lambda x, y: (torch.stack([x, y], 1), torch.cat([x, y, x], 1), torch.hstack([x, y])),
        ({0: B, 1: T}, {0: B, 1: T}), ((2, 3), (2, 3)), ((1, 1), (1, 1)), ((3, 6), (3, 6)),
    ),
    "moved: windows": (
        lambda x: (x.unfold(1, 3, 2), F.unfold(x[:, None, None], (1, 3))),
        {0: B, 1: L}, (2, 9), (1, 8), (2, 12),
    ),
    "reduced: sums": (
        lambda x: (x.sum(), x.mean(1), x.mean(), x.prod(1), x.std(0), x.var(1, correction=0),
                   x.norm(dim=1), x.logsumexp(1)),
        {0: Dim("m", min=2, max=9), 1: T}, (4, 6), (2, 1), (3, 9),
    ),
    "reduced: extremes": (
        lambda x: (x.max(), *x.max(1), *x.min(0), x.argmax(1), x.argmin(), x.amax((0, 1)),
                   x.argmax()),
        TWO, *TWO_CALLS,
    ),
    "reduced: running": (
        lambda x: (x.cumsum(1), x.cumprod(0), *x.cummax(1), x.logcumsumexp(1)), TWO,
        *TWO_CALLS,
    ),
    "reduced: sort": (
        lambda x: (*x.sort(1), *x.sort(0, descending=True), x.argsort(1)), TWO, *TWO_CALLS
    ),
    "reduced: topk": (
        lambda x: (*x.topk(2, 1), *x.topk(1, 0, largest=False), *x.kthvalue(2, 1)),
        {0: B, 1: Dim("n", min=2, max=64)}, (4, 6), (1, 2), (3, 9),
    ),
    "reduced: topk of a dim": (
        lambda x: x.topk(x.shape[1] // 2, 1), {1: 2 * T}, (3, 6), (3, 2), (3, 10)
    ),
    "reduced: median": (lambda x: (*x.median(1), *x.mode(1)), TWO, *TWO_CALLS),
    "reduced: counts": (
        lambda x: ((x > 0).sum(1), (x > 0).any(1), (x > 0).all(), x.count_nonzero(1)), TWO,
        *TWO_CALLS,
    ),
    "reduced: searched": (
        lambda x: (torch.searchsorted(x.sort(1)[0], x), torch.bucketize(x, x[0].sort()[0])),
        TWO, *TWO_CALLS,
    ),
    "indexed: gather": (
        lambda x, i: (x.gather(1, i.argsort(1)), torch.take_along_dim(x, i.argsort(1), 1)),
        ({0: B, 1: T}, {0: B, 1: T}), ((2, 3), (2, 3)), ((1, 1), (1, 1)), ((4, 5), (4, 5)),
    ),
    "indexed: gather fewer": (
        lambda x, i: x.gather(1, i.argsort(1) % x.shape[1]),
        ({0: B, 1: T}, {0: B, 1: S}), ((2, 3), (2, 5)), ((1, 4), (1, 1)), ((4, 5), (4, 2)),
    ),
    "indexed: scatter": (
        lambda x, i: (torch.zeros_like(x).scatter(1, i.argsort(1), x),
                      x.scatter_add(1, i.argsort(1), i), x.scatter(0, i.argsort(0), 2.0)),
        ({0: B, 1: T}, {0: B, 1: T}), ((2, 3), (2, 3)), ((1, 1), (1, 1)), ((4, 5), (4, 5)),
    ),
    "indexed: rows": (
        lambda x, i: (x[i.argsort() % x.shape[0]], x[:, i.argsort() % x.shape[1]],
                      x.index_select(0, i.argsort() % x.shape[0])),
        ({0: B, 1: T}, {0: S}), ((2, 3), (5,)), ((1, 1), (1,)), ((4, 5), (2,)),
    ),
    "indexed: places that are stored": (
        lambda x: (x[torch.tensor([0, -1])], x[:, torch.tensor([-1, 0, 0])],
                   torch.index_put(x, (torch.tensor([-1, 0]),), x[0] * 2)),
        TWO, *TWO_CALLS[:1], (2, 1), *TWO_CALLS[2:],
    ),
    "indexed: pairs": (
        lambda x, i: x[rows(x), i.argsort() % x.shape[1]], ({0: B, 1: T}, {0: B}),
        ((2, 3), (2,)), ((1, 1), (1,)), ((4, 5), (4,)),
    ),
    "indexed: last token": (
        lambda x: x[torch.arange(x.shape[0]), torch.full((x.shape[0],), x.shape[1] - 1)],
        {0: B, 1: T}, (2, 3, 4), (1, 1, 4), (5, 2, 4),
    ),
    "indexed: index_put": (
        lambda x, i: (x.index_put((i.argsort() % x.shape[0],), torch.tensor(7.0)),
                      torch.zeros(9, 3).index_add(0, i.argsort() % 9, i[:, None].expand(-1, 3)),
                      x.index_fill(0, i.argsort() % x.shape[0], 1.0)),
        ({0: B, 1: T}, {0: S}), ((2, 3), (5,)), ((1, 1), (1,)), ((4, 5), (2,)),
    ),
    "indexed: written slices": (
        lambda x: (x.slice_scatter(x[:, 1:] * 2, 1, 0, x.shape[1] - 1),
                   x.select_scatter(x[:, 0] * 3, 1, -1)),
        {0: B, 1: Dim("n", min=2, max=64)}, (4, 6), (1, 2), (3, 9),
    ),
    "indexed: masked": (
        lambda x, y: (x.masked_fill(y > 0, 0.0), x * (y > 0), (x * (y > 0)).sum(1)),
        ({0: B, 1: T}, {0: B, 1: T}), ((2, 3), (2, 3)), ((1, 1), (1, 1)), ((4, 5), (4, 5)),
    ),
    "indexed: embedding": (
        lambda x: F.embedding(x.argsort(1) % 9, torch.arange(27.0).view(9, 3)), TWO,
        *TWO_CALLS,
    ),
    "indexed: embedding bags beside rows": (
        lambda x: (
            F.embedding_bag(x.argsort(1) % 9, torch.arange(27.0).view(9, 3)) @ x[:, :3].T
            + torch.arange(x.shape[0])
        ),
        {0: Dim("rows", min=2, max=64), 1: L}, (4, 9), (2, 8), (5, 12),
    ),
    "indexed: embedding bag": (
        lambda x: F.embedding_bag(x.argsort(1) % 9, torch.arange(27.0).view(9, 3)), TWO,
        *TWO_CALLS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_every_size(name: str, check_sizes: Any) -> None:
    check_sizes(*TABLE[name])
