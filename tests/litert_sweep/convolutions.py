"""Transposed convolutions of every setting, and plain ones."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from litert_sweep.case import case


def _settings(rank: int) -> list[dict[str, Any]]:
    """Return strides, paddings, output paddings, groups and dilations that torch takes."""
    table = product((1, 2, 3), (0, 1), (0, 1), (1, 2), (1, 2))
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    found = [dict(zip(names, values, strict=True)) for values in table]
    valid = [s for s in found if s["output_padding"] < max(s["stride"], s["dilation"])]
    return valid if rank == 1 else valid[:: rank + 1]


def _transposed(rank: int, size: int) -> tuple[Any, ...]:
    function = getattr(F, f"conv_transpose{rank}d")
    weight, bias = torch.randn(4, 2, *(3,) * rank), torch.randn(4)

    def every(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            function(x, weight, bias[: 2 * s["groups"]], **s) for s in _settings(rank)
        ]

    return every, torch.randn(1, 4, *(size,) * rank)


@case("convolution")
def conv_transpose1d() -> Any:
    return _transposed(1, 7)


@case("convolution", quick=True)
def conv_transpose2d() -> Any:
    return _transposed(2, 5)


@case("convolution")
def conv_transpose3d() -> Any:
    return _transposed(3, 4)


@case("convolution")
def conv_transpose_uneven() -> Any:
    """Another number on each axis."""
    weight = torch.randn(4, 3, 2, 5)
    rest = {"stride": (3, 2), "padding": (0, 2), "output_padding": (2, 1)}
    return lambda x: F.conv_transpose2d(x, weight, **rest), torch.randn(2, 4, 4, 6)


@case("convolution")
def conv_plain() -> Any:
    dense, depth = torch.randn(6, 4, 3, 3), torch.randn(8, 1, 3, 3)

    def several(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.conv2d(x, dense, stride=2, padding=1),
            F.conv2d(x, dense, padding="same", dilation=2),
            F.conv2d(x, depth, groups=4, padding=(1, 0)),
            F.conv1d(x[:, :, 0], dense[..., 0], padding=2),
        ]

    return several, torch.randn(2, 4, 9, 8)


@case("convolution")
def conv3d() -> Any:
    weight = torch.randn(3, 2, 3, 2, 3)
    return lambda x: F.conv3d(x, weight, padding=1), torch.randn(1, 4, 5, 6, 5)[:, :2]


@case("convolution")
def conv3d_grouped() -> Any:
    """In groups, one a channel too."""
    two, each = torch.randn(6, 2, 3, 2, 3), torch.randn(8, 1, 3, 3, 3)

    def several(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.conv3d(x, two, torch.ones(6), stride=(1, 2, 1), groups=2),
            F.conv3d(x, each, padding=1, groups=4),
            F.conv3d(x, each, padding="same", dilation=2, groups=4),
        ]

    return several, torch.randn(1, 4, 5, 6, 5)
