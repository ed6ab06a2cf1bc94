"""Bilinear resizing of images as the composite that becomes LiteRT's own op."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jax import Array
from jax import numpy as jnp

from tpu_export.converters.stablehlo.layout.forms import from_last, to_last
from tpu_export.converters.stablehlo.operands import composite, widen
from tpu_export.converters.stablehlo.ops.resize import interpolate, sizes_of
from tpu_export.converters.stablehlo.ops.resize_weights import Scaling
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
RESIZE = "litert.resize_bilinear"


def _bilinear(
    x: Array, sizes: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> Array:
    def resized(y: Array) -> Array:
        return interpolate(y, sizes, align_corners, scales, "linear")

    if not _is_builtin(x, sizes, align_corners, scales):
        return resized(x)

    def images(y: Array) -> Array:
        return resized(y.transpose(from_last(4))).transpose(to_last(4))

    image = widen(x).transpose(to_last(4))
    y: Array = composite(RESIZE, images, image, align_corners=align_corners)
    return y.transpose(from_last(4)).astype(x.dtype)


def _is_builtin(
    x: Array, sizes: Sequence[int], align_corners: bool, scales: Sequence[float | None]
) -> bool:
    """Whether LiteRT's op goes as far in a step as torch does: it knows the sizes only."""
    shape = (*x.shape, *sizes)
    if not jnp.issubdtype(x.dtype, jnp.floating) or x.shape[2:] == tuple(sizes):
        return False
    if not all(isinstance(d, int) for d in shape):
        return False
    kind = np.dtype(np.float32)
    return all(
        Scaling(size, out, align_corners, scale, kind).step
        == Scaling(size, out, align_corners, None, kind).step
        for size, out, scale in zip(x.shape[2:], sizes, scales, strict=True)
    )


@lowers(aten.upsample_bilinear2d.vec, target="litert")
def upsample_bilinear2d_vec(
    x: Array,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> Array:
    sizes, scales = sizes_of(x, output_size, scale_factors)
    return _bilinear(x, sizes, align_corners, scales)


@lowers(aten.upsample_bilinear2d.default, target="litert")
def upsample_bilinear2d(
    x: Array,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Array:
    return _bilinear(x, output_size, align_corners, (scales_h, scales_w))
