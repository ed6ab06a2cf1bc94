"""Pools of every kind."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from litert_sweep.case import case

SETTINGS = [(2, 2, 0), (3, 2, 1), ((3, 2), (2, 1), (1, 0)), (3, 1, 1)]


@case("pool", quick=True)
def max_pool_indices() -> Any:
    def pools(x: Tensor) -> list[Tensor]:
        found = [
            F.max_pool2d(x, *s, dilation=d, ceil_mode=c, return_indices=True)
            for s in SETTINGS
            for d in (1, 2)
            for c in (False, True)
        ]
        return [y for pair in found for y in pair]

    return pools, torch.randn(1, 2, 9, 10)


@case("pool")
def max_pool() -> Any:
    def pools(x: Tensor) -> list[Tensor]:
        images = [
            F.max_pool2d(x, *s, dilation=d, ceil_mode=c)
            for s in SETTINGS
            for d in (1, 2)
            for c in (False, True)
        ]
        volume = F.max_pool3d(x[None], 2, 2, 1, ceil_mode=True)
        return [*images, F.max_pool1d(x[0], 3, 2, 1), volume]

    return pools, torch.randn(1, 2, 9, 10)


@case("pool")
def avg_pool() -> Any:
    def pools(x: Tensor) -> list[Tensor]:
        images = [
            F.avg_pool2d(x, *s, ceil_mode=c, count_include_pad=i)
            for s in SETTINGS
            for c in (False, True)
            for i in (False, True)
        ]
        return [*images, F.avg_pool1d(x[0], 3, 2, 1), F.avg_pool3d(x[None], 2)]

    return pools, torch.randn(1, 2, 9, 10)


@case("pool")
def max_unpool() -> Any:
    def pools(x: Tensor) -> list[Tensor]:
        y, places = F.max_pool2d(x, 2, 2, return_indices=True)
        z, line = F.max_pool1d(x[0], 2, 2, return_indices=True)
        sized = F.max_unpool2d(y, places, 2, 2, output_size=(9, 10))
        return [F.max_unpool2d(y, places, 2, 2), sized, F.max_unpool1d(z, line, 2, 2)]

    return pools, torch.randn(1, 2, 9, 10)


@case("pool")
def adaptive_pools() -> Any:
    def pools(x: Tensor) -> list[Tensor]:
        return [
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (4, 3)),
            F.adaptive_avg_pool1d(x[0], 7),
            F.adaptive_max_pool2d(x, (4, 3)),
            *F.adaptive_max_pool2d(x, (2, 5), return_indices=True),
            F.adaptive_max_pool1d(x[0], 3),
        ]

    return pools, torch.randn(1, 2, 9, 10)


@case("pool")
def lp_pool() -> Any:
    return lambda x: (F.lp_pool2d(x, 2, 3, 2), F.lp_pool1d(x[0], 2, 3)), torch.rand(
        1, 2, 9, 10
    )
