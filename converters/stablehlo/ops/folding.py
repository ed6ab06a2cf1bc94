"""Sliding blocks as columns, and columns summed back, one axis at a time.

Neither gathers nor scatters: LiteRT runs only slices, pads and sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import spread
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _blocks(size: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@lowers(aten.im2col.default)
def im2col(
    x: Array,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    if x.ndim == 3:
        return im2col(x[None], kernel_size, dilation, padding, stride)[0]
    settings = [spread(s, 2) for s in (kernel_size, dilation, padding, stride)]
    rows, cols = zip(*settings, strict=True)
    batch, channels, height, width = x.shape
    y = _unfold(x, 2, _blocks(height, *rows), *rows)  # [N, C, kh, Lh, W]
    y = _unfold(y, 4, _blocks(width, *cols), *cols)  # [N, C, kh, Lh, kw, Lw]
    y = y.transpose(0, 1, 2, 4, 3, 5)
    block, places = channels * y.shape[2] * y.shape[3], y.shape[4] * y.shape[5]
    return y.reshape(batch, block, places)


def _unfold(
    x: Array,
    dim: int,
    count: int,
    kernel: int,
    dilation: int,
    padding: int,
    stride: int,
) -> Array:
    config = [(0, 0, 0)] * x.ndim
    config[dim] = (padding, padding, 0)
    x = lax.pad(x, jnp.zeros((), x.dtype), config)
    span = (count - 1) * stride + 1
    starts = [k * dilation for k in range(kernel)]
    slices = [lax.slice_in_dim(x, s, s + span, stride, dim) for s in starts]
    return jnp.stack(slices, axis=dim)


@lowers(aten.col2im.default)
def col2im(
    x: Array,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Array:
    if x.ndim == 2:
        rest = (output_size, kernel_size, dilation, padding, stride)
        return col2im(x[None], *rest)[0]
    settings = [spread(s, 2) for s in (kernel_size, dilation, padding, stride)]
    rows, cols = zip(*settings, strict=True)
    height, width = output_size
    tall, wide = _blocks(height, *rows), _blocks(width, *cols)
    channels = x.shape[1] // (rows[0] * cols[0])
    y = x.reshape(x.shape[0], channels, rows[0], cols[0], tall, wide)
    y = _fold(y.transpose(0, 1, 2, 4, 3, 5), 4, width, *cols)  # [N, C, kh, Lh, W]
    return _fold(y, 2, height, *rows)


def _fold(
    x: Array,
    dim: int,
    size: int,
    kernel: int,
    dilation: int,
    padding: int,
    stride: int,
) -> Array:
    """Sum x [..., kernel, blocks, ...] into an axis of `size` at `dim`."""
    span = (x.shape[dim + 1] - 1) * stride + 1
    total = size + 2 * padding

    def placed(k: int) -> Array:
        piece = lax.index_in_dim(x, k, dim, keepdims=False)
        config = [(0, 0, 0)] * piece.ndim
        config[dim] = (k * dilation, total - span - k * dilation, stride - 1)
        return lax.pad(piece, jnp.zeros((), x.dtype), config)

    y = reduce(jnp.add, (placed(k) for k in range(kernel)))
    return lax.slice_in_dim(y, padding, padding + size, axis=dim)
