"""Channels to pixels and back, and channel shuffles: reshapes around a transpose."""

from __future__ import annotations

import torch
from jax import Array

from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.pixel_shuffle.default)
def pixel_shuffle(x: Array, upscale_factor: int) -> Array:
    r, n = upscale_factor, x.ndim - 3
    *lead, channels, height, width = x.shape
    y = x.reshape(*lead, channels // (r * r), r, r, height, width)
    y = y.transpose(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return y.reshape(*lead, channels // (r * r), height * r, width * r)


@lowers(aten.pixel_unshuffle.default)
def pixel_unshuffle(x: Array, downscale_factor: int) -> Array:
    r, n = downscale_factor, x.ndim - 3
    *lead, channels, height, width = x.shape
    y = x.reshape(*lead, channels, height // r, r, width // r, r)
    y = y.transpose(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return y.reshape(*lead, channels * r * r, height // r, width // r)


@lowers(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(x: Array, groups: int) -> Array:
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return split.swapaxes(1, 2).reshape(x.shape)
