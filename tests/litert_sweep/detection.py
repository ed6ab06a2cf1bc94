"""The tail of a detector: boxes, scores, overlap, suppression; resizes and samples."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._higher_order_ops import while_loop

from litert_sweep.case import case


def _overlap(a: Tensor) -> Tensor:
    """Return the intersection over the union of each pair of boxes [n, 4]."""
    low = torch.maximum(a[:, None, :2], a[None, :, :2])
    high = torch.minimum(a[:, None, 2:], a[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    area = (a[:, 2:] - a[:, :2]).prod(-1)
    return shared / (area[:, None] + area[None] - shared)


def _boxes(n: int) -> Tensor:
    low = torch.rand(n, 2) * 8
    return torch.cat([low, low + 1 + torch.rand(n, 2) * 4], 1)


def _suppressed(boxes: Tensor, scores: Tensor, keep: int) -> list[Tensor]:
    best, order = scores.topk(keep)
    boxes = boxes[order]
    close = _overlap(boxes) > 0.4
    later = torch.ones(keep, keep).triu(1).bool()

    def goes_on(i: Tensor, kept: Tensor) -> Tensor:
        return i < keep

    def body(i: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        row = (close & later).index_select(0, i.reshape(1))[0]
        mine = kept.index_select(0, i.reshape(1))
        return i + 1, kept & ~(row & mine)

    start = (torch.tensor(0), torch.ones(keep, dtype=torch.bool))
    _, kept = while_loop(goes_on, body, start)
    return [boxes, torch.where(kept, best, 0.0), kept, order]


@case("detection")
def nms() -> Any:
    return lambda b, s: _suppressed(b, s, 30), _boxes(50), torch.randperm(50) / 50


@case("detection")
def nms_unrolled() -> Any:
    """As models write it themselves: a Python loop."""

    def forward(boxes: Tensor, scores: Tensor) -> list[Tensor]:
        order = scores.argsort(descending=True)
        boxes = boxes[order]
        close = _overlap(boxes) > 0.4
        kept = torch.ones(12, dtype=torch.bool)
        for i in range(12):
            later = torch.arange(12) > i
            kept = kept & ~(close[i] & later & kept[i])
        return [boxes * kept[:, None], scores[order] * kept]

    return forward, _boxes(12), torch.randperm(12) / 12


@case("detection")
def anchors_to_boxes() -> Any:
    def decode(deltas: Tensor, logits: Tensor) -> list[Tensor]:
        anchors = torch.arange(64.0).reshape(16, 4) + torch.tensor([0.0, 0, 8, 8])
        size = anchors[:, 2:] - anchors[:, :2]
        middle = anchors[:, :2] + size / 2 + deltas[..., :2] * size
        half = size * deltas[..., 2:].clamp(max=4.1).exp() / 2
        boxes = torch.cat([middle - half, middle + half], -1).clamp(0, 64)
        scores, labels = logits.softmax(-1).max(-1)
        best, order = scores.topk(5)
        places = order[..., None].expand(-1, -1, 4)
        return [boxes.gather(1, places), best, labels.gather(1, order)]

    return decode, torch.randn(2, 16, 4), torch.randn(2, 16, 7)


@case("resize", quick=True)
def resizes() -> Any:
    def every(x: Tensor) -> list[Tensor]:
        plain = [
            F.interpolate(x, (11, 5), mode=m)
            for m in ("nearest", "nearest-exact", "area")
        ]
        smooth = [
            F.interpolate(x, (11, 5), mode=m, align_corners=a, antialias=s)
            for m in ("bilinear", "bicubic")
            for a in (False, True)
            for s in (False, True)
        ]
        double = F.interpolate(x, scale_factor=2, mode="bilinear")
        return [*plain, *smooth, double]

    return every, torch.randn(1, 3, 6, 7)


@case("resize")
def resizes_of_other_ranks() -> Any:
    def every(x: Tensor) -> list[Tensor]:
        return [
            F.interpolate(x[0], 10, mode="linear"),
            F.interpolate(x[0], 4, mode="nearest"),
            F.interpolate(x[None], (4, 5, 9), mode="trilinear"),
            F.interpolate(x[None], (4, 5, 9), mode="nearest"),
            F.pixel_shuffle(x[:, :, :4, :4].reshape(1, 12, 2, 2), 2),
            F.pixel_unshuffle(x[:, :, :4, :4], 2),
        ]

    return every, torch.randn(1, 3, 6, 7)


@case("resize")
def grid_samples() -> Any:
    def every(x: Tensor, grid: Tensor) -> list[Tensor]:
        return [
            F.grid_sample(x, grid, mode=m, padding_mode=p, align_corners=a)
            for m in ("bilinear", "nearest", "bicubic")
            for p in ("zeros", "border", "reflection")
            for a in (False, True)
        ]

    return every, torch.randn(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2.6 - 1.3


@case("resize")
def affine_grids() -> Any:
    def warp(x: Tensor, theta: Tensor) -> Tensor:
        grid = F.affine_grid(theta, [2, 3, 4, 5], align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    return warp, torch.randn(2, 3, 5, 6), torch.randn(2, 2, 3) / 2
