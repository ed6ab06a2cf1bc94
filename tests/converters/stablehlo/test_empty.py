"""Static dimensions of size 0: every family gives what torch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS, IMAGES, IDS = (0, 6), (0, 3, 8, 8), torch.zeros(0, dtype=torch.long)
Case = Callable[[Tensor], Any]

ON_ROWS: dict[str, Case] = {
    "elements": lambda x: (F.gelu(x), F.glu(x), torch.where(x > 0, x, -x), x.lerp(x, 0.5)),
    "random": lambda x: (F.dropout(x, 0.5, True), torch.rand_like(x), torch.randn(0, 3)),
    "softmax": lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(0)),
    "sums": lambda x: (x.sum(), x.sum(0), x.sum(1), x.mean(), x.mean(0), x.prod(0)),
    "spread": lambda x: (x.var(0), x.var(1), *torch.std_mean(x, 1), x.norm()),
    "extremes": lambda x: (x.amax(1), *x.max(1), x.argmax(1), *x.aminmax(dim=1)),
    "any and all": lambda x: ((x > 0).any(), (x > 0).all(), (x > 0).all(0)),
    "logsumexp": lambda x: (x.logsumexp(1), x.logsumexp(0), x.count_nonzero()),
    "running": lambda x: (x.cumsum(0), x.cumsum(1), x.cumprod(0), *x.cummax(0)),
    "order": lambda x: (*x.sort(0), *x.sort(1), x.argsort(0), *x.topk(2, 1), *x.topk(0, 0)),
    "middle": lambda x: (*x.median(1), *x.nanmedian(1), *x.mode(1), *x.kthvalue(1, 1)),
    "joined": lambda x: (torch.cat([x, torch.ones(2, 6)]), torch.stack([x, x])),
    "cut": lambda x: (*x.split(2, 1), *x.split(2), *x.chunk(3), *x.tensor_split(3)),
    "shapes": lambda x: (x.reshape(0, 2, 3), x.flatten(), x.view(6, 0), x.T, x[None].mT),
    "slices": lambda x: (x[:, 1:3], x[:0], x[0:2], x[:, ::2], x[:, 1], x.diagonal()),
    "repeated": lambda x: (x.repeat(2, 2), x.repeat_interleave(2, 0), x.expand(3, 0, 6)),
    "moved": lambda x: (x.flip(0), x.roll(1, 0), x.roll(1, 1), x.tril(), x.triu(1)),
    "reads": lambda x: (x[:, torch.tensor([1, 2])], x[IDS], x.gather(1, IDS[:, None])),
    "writes": lambda x: (
        torch.zeros(3, 6).index_add(0, IDS, x), torch.zeros(3, 6).index_put((IDS,), x),
        x.scatter(1, IDS[:, None], 1.0), torch.zeros(3, 6).index_copy(0, IDS, x),
        x.masked_fill(x > 0, 1.0), x.slice_scatter(torch.zeros(0, 2), 1, 0, 2),
    ),
    "masks": lambda x: (x[x > 0].sum(), x.nonzero_static(size=2)),
    "counts": lambda x: (torch.bincount(IDS, minlength=3), torch.histc(x, 4, 0, 1)),
    "edges": lambda x: (F.pad(x, (1, 1)), F.pad(x, (0, 0, 1, 1))),
    "products": lambda x: (
        x @ torch.ones(6, 3), torch.ones(2, 4, 0) @ torch.ones(0, 3), x.T @ x,
        torch.einsum("ij,kj->ik", x, torch.ones(3, 6)), torch.kron(x, torch.ones(2, 2)),
        torch.bmm(torch.ones(2, 0, 6), torch.ones(2, 6, 3)), F.linear(x.T, torch.ones(4, 0)),
    ),
    "distances": lambda x: (torch.cdist(x, torch.ones(3, 6)), F.cosine_similarity(x, x)),
    "norms": lambda x: (F.layer_norm(x, (6,)), F.rms_norm(x, (6,)), F.normalize(x)),
    "losses": lambda x: (F.mse_loss(x, x), F.cross_entropy(x, IDS), F.l1_loss(x, x)),
    "tables": lambda x: (F.embedding(IDS, torch.ones(5, 3)), F.one_hot(IDS, 4)),
    "bags": lambda x: F.embedding_bag(IDS, torch.ones(5, 3), torch.zeros(2, dtype=int)),
    "bounds": lambda x: torch.bucketize(x, torch.arange(3.0)),
    "ranges": lambda x: (torch.arange(0), torch.zeros(0, 3), torch.linspace(0, 1, 0)),
    "no keys": lambda x: F.scaled_dot_product_attention(
        torch.ones(1, 2, 3, 8), torch.ones(1, 2, 0, 8), torch.ones(1, 2, 0, 8)
    ),
    "no queries": lambda x: F.scaled_dot_product_attention(
        torch.ones(1, 2, 0, 8), torch.ones(1, 2, 4, 8), torch.ones(1, 2, 4, 8)
    ),
    "matrices": lambda x: (
        torch.linalg.inv(torch.ones(0, 3, 3)), torch.linalg.cholesky(torch.ones(0, 3, 3)),
    ),
    "branches": lambda x: torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,)),
}  # fmt: skip
ON_IMAGES: dict[str, Case] = {
    "convolution": lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), padding=1),
    "transposed convolution": lambda x: F.conv_transpose2d(x, torch.ones(3, 4, 2, 2)),
    "pooling": lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)),
    "adaptive pooling": lambda x: (
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_max_pool2d(x, 2),
    ),
    "norms": lambda x: (F.group_norm(x, 1), F.instance_norm(x)),
    "resizing": lambda x: (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, size=(5, 5), mode="bilinear"),
    ),
    "sampling": lambda x: F.grid_sample(
        x, torch.zeros(0, 2, 4, 2), align_corners=False
    ),
    "columns": lambda x: F.unfold(x, 3),
    "reflection": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
}


class Fn(nn.Module):
    def __init__(self, function: Case) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ON_ROWS)
def test_no_rows(check_module: Any, name: str) -> None:
    check_module(Fn(ON_ROWS[name]), (torch.zeros(ROWS),))


@pytest.mark.parametrize("name", ON_IMAGES)
def test_no_images(check_module: Any, name: str) -> None:
    check_module(Fn(ON_IMAGES[name]), (torch.zeros(IMAGES),))
