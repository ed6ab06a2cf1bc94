"""Dynamic dimensions of layers: windows, norms, attention, recurrence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

B, T, S = Dim("b", max=64), Dim("t", max=64), Dim("s", max=64)
L, W = Dim("l", min=8, max=128), Dim("w", min=16, max=128)
TWO = ({0: B, 1: T},)
TWO_CALLS = ((4, 6), (1, 1), (3, 9), (5, 2))

IMAGE = {0: B, 2: Dim("h", min=8, max=64), 3: Dim("w", min=8, max=64)}
IMAGES = ((2, 4, 16, 12), (1, 4, 8, 9), (2, 4, 11, 15))
LINE, LINES = {0: B, 2: L}, ((2, 4, 16), (1, 4, 8), (3, 4, 13))


def sampled(**options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, **options)


FEW = Dim("f", min=2, max=25)  # torch computes distances of more by another formula
TOKENS, TEXTS = {0: B, 1: T}, ((2, 5, 8), (1, 1, 8), (3, 9, 8))
HEADS = {0: B, 2: T}


def attended(q: Tensor, k: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, k * 2, **options)


def spectrogram(x: Tensor) -> Tensor:
    y = torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True)
    return torch.view_as_real(y)


def vocoder(x: Tensor) -> Tensor:
    y = torch.complex(x.cos(), x.sin())
    return torch.istft(y, 16, 4, window=torch.hann_window(16))


def pyramid(x: Tensor) -> Tensor:
    """Sizes that are equal, though JAX writes them as different divisions."""
    half = F.max_pool2d(x, 2)
    quarter = F.max_pool2d(half, 2)
    eighth = F.avg_pool2d(quarter, 2)
    return (quarter + F.avg_pool2d(x, 4)).sum((2, 3)) + (
        eighth + F.max_pool2d(x, 8)
    ).mean((2, 3))


def strides(x: Tensor) -> Tensor:
    kernel = torch.ones(4, 4, 3) / 12
    twice = F.conv1d(F.conv1d(x, kernel, None, 2, 1), kernel, None, 2, 1)
    return twice + F.conv1d(x, kernel, stride=4, padding=1)


TABLE: dict[str, tuple[Any, ...]] = {
    "windows: conv1d": (nn.Conv1d(4, 6, 3, padding=1), LINE, *LINES),
    "windows: conv1d by steps": (nn.Conv1d(4, 6, 5, stride=3, dilation=1), LINE, *LINES),
    "windows: equal sizes by other divisions": (pyramid, IMAGE, *IMAGES),
    "windows: strides of strides": (strides, LINE, *LINES),
    "windows: conv2d": (nn.Conv2d(4, 6, 3, padding="same", groups=2), IMAGE, *IMAGES),
    "windows: conv2d twice by 2": (
        nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, 1)),
        IMAGE, *IMAGES,
    ),
    "windows: conv transposed 1d": (nn.ConvTranspose1d(4, 6, 4, 2, 1), LINE, *LINES),
    "windows: conv transposed 2d": (
        nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), IMAGE, *IMAGES
    ),
    "windows: u-net": (
        lambda x: x + F.interpolate(F.avg_pool2d(x, 2), scale_factor=2.0),
        {0: B, 2: 2 * T, 3: 2 * S}, (2, 4, 8, 6), (1, 4, 2, 4), (1, 4, 10, 2),
    ),
    "windows: pools": (
        lambda x: (F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.max_pool2d(x, 2),
                   F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        IMAGE, *IMAGES,
    ),
    "windows: pools rounding up": (
        lambda x: (F.max_pool2d(x, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, ceil_mode=True)),
        {2: Dim.AUTO, 3: Dim.AUTO}, (2, 4, 16, 12), (2, 4, 8, 9), (2, 4, 11, 15),
    ),
    "windows: pool with places": (
        lambda x: F.max_pool2d(x, 2, return_indices=True), IMAGE, *IMAGES
    ),
    "windows: pools of lines": (lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 3)), LINE, *LINES),
    "windows: adaptive to one": (
        lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 1)), IMAGE, *IMAGES
    ),
    "windows: adaptive to a few": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), IMAGE, *IMAGES),
    "windows: nearest by scale": (sampled(scale_factor=2.0), IMAGE, *IMAGES),
    "windows: by one and a half": (sampled(scale_factor=1.5), IMAGE, *IMAGES),
    "windows: bilinear by three quarters": (
        sampled(scale_factor=0.75, mode="bilinear"), IMAGE, *IMAGES,
    ),
    "windows: bilinear by scale": (sampled(scale_factor=2.0, mode="bilinear"), IMAGE, *IMAGES),
    "windows: bilinear by a part": (
        sampled(scale_factor=0.5, mode="bilinear", align_corners=False), IMAGE, *IMAGES
    ),
    "windows: nearest to a size": (sampled(size=(10, 7)), IMAGE, *IMAGES),
    "windows: bilinear to a size": (
        sampled(size=(10, 7), mode="bilinear", align_corners=True), IMAGE, *IMAGES
    ),
    "windows: to another's size": (
        lambda x, y: (F.interpolate(x, size=y.shape[2:], mode="bilinear"),
                      F.interpolate(x, size=y.shape[-2:])),
        (IMAGE, {0: B, 2: T, 3: S}), ((2, 4, 16, 12), (2, 1, 5, 6)),
        ((1, 4, 8, 9), (1, 1, 20, 9)), ((1, 4, 9, 8), (1, 1, 1, 3)),
    ),
    "windows: linear by scale": (sampled(scale_factor=2.0, mode="linear"), LINE, *LINES),
    "windows: bicubic by scale": (sampled(scale_factor=2.0, mode="bicubic"), IMAGE, *IMAGES),
    "windows: pixel shuffle": (
        lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2), IMAGE, *IMAGES
    ),
    "windows: sampled by a grid": (
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
        (IMAGE, {0: B, 1: T, 2: S}), ((2, 4, 16, 12), (2, 5, 6, 2)),
        ((1, 4, 8, 9), (1, 1, 1, 2)), ((1, 4, 9, 8), (1, 3, 2, 2)),
    ),
    "layers: linear": (nn.Sequential(nn.Linear(8, 4), nn.GELU()), TOKENS, *TEXTS),
    "layers: layer norm": (nn.LayerNorm(8), TOKENS, *TEXTS),
    "layers: group norm": (nn.GroupNorm(2, 4), IMAGE, *IMAGES),
    "layers: batch norm": (nn.BatchNorm2d(4).eval(), IMAGE, *IMAGES),
    "layers: instance norm": (nn.InstanceNorm2d(4), IMAGE, *IMAGES),
    "layers: norms over a dim": (
        lambda x: (F.normalize(x, dim=1), F.softmax(x, 1), F.log_softmax(x, 0)), TWO,
        *TWO_CALLS,
    ),
    "layers: einsum": (
        lambda x, y: (torch.einsum("btc,bsc->bts", x, y), torch.einsum("btc,bsd->cd", x, y)),
        (TOKENS, {0: B, 1: S}), ((2, 5, 4), (2, 3, 4)), ((1, 1, 4), (1, 7, 4)),
        ((3, 9, 4), (3, 1, 4)),
    ),
    "layers: matmul": (
        lambda x, y: (x @ y.mT, torch.matmul(x, y[0].T), torch.bmm(x, y.mT)),
        (TOKENS, {0: B, 1: S}), ((2, 5, 4), (2, 3, 4)), ((1, 1, 4), (1, 7, 4)),
        ((3, 9, 4), (3, 1, 4)),
    ),
    "layers: attention": (
        lambda x: attended(x, x), HEADS, (2, 2, 5, 4), (1, 2, 1, 4), (3, 2, 9, 4)
    ),
    "layers: causal attention": (
        lambda x: attended(x, x, is_causal=True), HEADS, (2, 2, 5, 4), (1, 2, 1, 4),
        (3, 2, 9, 4),
    ),
    "layers: masked cross attention": (
        lambda q, k, m: attended(q, k, attn_mask=m), (HEADS, {0: B, 2: S}, {2: T, 3: S}),
        ((2, 2, 5, 4), (2, 2, 3, 4), (1, 1, 5, 3)), ((1, 2, 1, 4), (1, 2, 7, 4), (1, 1, 1, 7)),
        ((2, 2, 4, 4), (2, 2, 1, 4), (1, 1, 4, 1)),
    ),
    "layers: grouped attention": (
        lambda q, k: attended(q, k, enable_gqa=True, is_causal=True), (HEADS, HEADS),
        ((2, 4, 5, 4), (2, 2, 5, 4)), ((1, 4, 1, 4), (1, 2, 1, 4)),
    ),
    "layers: encoder": (
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), TOKENS, *TEXTS
    ),
    "layers: multihead": (
        nn.MultiheadAttention(8, 2, batch_first=True), (TOKENS,) * 3,
        *((shape,) * 3 for shape in TEXTS),
    ),
    "layers: lstm": (nn.LSTM(8, 4, batch_first=True), TOKENS, *TEXTS),
    "layers: gru": (nn.GRU(8, 4, 2, batch_first=True, bidirectional=True), TOKENS, *TEXTS),
    "layers: spectrogram": (spectrogram, {0: B, 1: W}, (2, 40), (1, 33), (3, 71)),
    "layers: vocoder": (vocoder, {0: B, 2: Dim("f", min=4, max=64)}, (2, 9, 9), (1, 9, 4)),
    "layers: bilinear": (
        lambda x, y: F.bilinear(x, y, torch.ones(3, 4, 5)), ({0: B}, {0: B}),
        ((2, 4), (2, 5)), ((1, 4), (1, 5)), ((6, 4), (6, 5)),
    ),
    "layers: losses": (
        lambda x, y: (F.mse_loss(x, y), F.cross_entropy(x, y.argmax(1)), F.l1_loss(x, y)),
        ({0: B, 1: T}, {0: B, 1: T}), ((2, 3), (2, 3)), ((1, 1), (1, 1)), ((4, 5), (4, 5)),
    ),
    "layers: distances": (
        lambda x, y: (torch.cdist(x, y), F.cosine_similarity(x[:, None], y[None], -1)),
        ({0: FEW}, {0: Dim("g", min=2, max=25)}), ((2, 3), (5, 3)), ((4, 3), (2, 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_every_size(name: str, check_sizes: Any) -> None:
    check_sizes(*TABLE[name])
