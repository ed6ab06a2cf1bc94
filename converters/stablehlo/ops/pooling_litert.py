"""Pooling in the forms that LiteRT has right, and fast ops for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import lowest, spread
from tpu_export.converters.stablehlo.ops.pooling import (
    Windows,
    avg_pool,
    flat_indices,
    max_pool,
    overload,
    windows_of,
)
from tpu_export.converters.stablehlo.registry import Target, lowers

aten = torch.ops.aten


def _padded(x: Array, fill: Any, windows: Sequence[Windows]) -> Array:
    config = [(0, 0, 0)] * (x.ndim - len(windows)) + [(*w.pads, 0) for w in windows]
    return lax.pad(x, jnp.asarray(fill, x.dtype), config)


def _max_pool(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
    *,
    rank: int,
) -> Array:
    """Pad before the windows where LiteRT's converter would take all padding for SAME.

    It looks at the padded axes only, and pads the others too: the op then writes beyond its
    result.
    """
    args = (kernel_size, stride, padding, dilation, ceil_mode)
    windows = windows_of(x, *args, rank)
    same = [_same(w) for w in windows if any(w.pads)] if _static(x) else []
    if same and all(same) and not all(map(_same, windows)):
        x = _padded(x, lowest(x.dtype), windows)
        args = (kernel_size, stride, 0, dilation, False)
    return max_pool(x, *args, rank=rank)


def _static(x: Array) -> bool:
    return all(isinstance(d, int) for d in x.shape)


def _same(w: Windows) -> bool:
    """Tell whether the padding is TensorFlow's SAME."""
    out = -(-w.size // w.stride)
    total = max((out - 1) * w.stride + w.dilation * (w.kernel - 1) + 1 - w.size, 0)
    return w.pads == (total // 2, total - total // 2)


def _max_pool_with_indices(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
    *,
    rank: int,
) -> tuple[Array, Array]:
    # LiteRT gets a window of pairs wrong: stack the window's elements and reduce them.
    args = (kernel_size, stride, padding, dilation, ceil_mode, rank)
    windows = windows_of(x, *args)
    big = np.int64(np.iinfo(np.int32).max)
    values = _stacked(x, lowest(x.dtype), windows)
    places = _stacked(flat_indices(x, rank), big, windows)
    y = jnp.max(values, axis=0)
    indices = jnp.min(jnp.where(values == y, places, big), axis=0)
    if jnp.issubdtype(x.dtype, jnp.floating):  # LiteRT's maximum loses NaN
        last = jnp.max(jnp.where(values != values, places, -1), axis=0)
        y = jnp.where(last >= 0, jnp.nan, y)
        indices = jnp.where(last >= 0, last, indices)
    return y, indices


def _stacked(x: Array, fill: Any, windows: Sequence[Windows]) -> Array:
    """Return the elements of each window as a new leading axis."""
    lead = x.ndim - len(windows)
    x = _padded(x, fill, windows)
    pieces = [x]
    for dim, w in enumerate(windows, start=lead):
        span = (w.out - 1) * w.stride + 1
        starts = [k * w.dilation for k in range(w.kernel)]
        pieces = [
            lax.slice_in_dim(p, s, s + span, w.stride, dim)
            for p in pieces
            for s in starts
        ]
    return jnp.stack(pieces)


def _avg_pool(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    rank: int,
) -> Array:
    # LiteRT has a fast op for windows without padding only: pad before them.
    pads = spread(padding, rank)
    if any(pads) and count_include_pad and not ceil_mode:
        config = [(0, 0, 0)] * (x.ndim - rank) + [(p, p, 0) for p in pads]
        x, padding = lax.pad(x, jnp.zeros((), x.dtype), config), 0
    rest = (ceil_mode, count_include_pad, divisor_override)
    return avg_pool(x, kernel_size, stride, padding, *rest, rank=rank)


def _as_images(pool: Callable[..., Array]) -> Callable[..., Array]:
    """Run a pool of sequences as one of images a pixel wide: LiteRT has no other."""

    def rule(
        x: Array,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] | int = 0,
        *rest: Any,
    ) -> Array:
        kernel, pads = spread(kernel_size, 1), spread(padding, 1)
        steps = (*(spread(stride, 1) if stride else kernel), 1)
        wide = [(*v, 1) if isinstance(v, Sequence) else v for v in rest]
        return pool(x[..., None], (*kernel, 1), steps, (*pads, 0), *wide)[..., 0]

    return rule


_LITERT: Target = "litert"
for _rank in (1, 2, 3):
    lowers(overload("max_pool{}d_with_indices.default", _rank), target=_LITERT)(
        partial(_max_pool_with_indices, rank=_rank)
    )
for _rank in (2, 3):
    for _name, _rule in (("max", _max_pool), ("avg", _avg_pool)):
        lowers(overload(_name + "_pool{}d.default", _rank), target=_LITERT)(
            partial(_rule, rank=_rank)
        )
for _op, _rule in (
    (aten.max_pool1d.default, _max_pool),
    (aten.avg_pool1d.default, _avg_pool),
):
    lowers(_op, target=_LITERT)(_as_images(partial(_rule, rank=2)))
