"""Pooling over windows; window sizes and output sizes follow torch's ceil-mode rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import lowest, spread, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@dataclass(frozen=True)
class Windows:
    """The windows of one spatial axis; size is that of the axis, out the number of windows."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    out: int

    @property
    def pads(self) -> tuple[int, int]:
        """Padding on both sides: what the last window reaches, and no more."""
        reach = (self.out - 1) * self.stride + self.dilation * (self.kernel - 1) + 1
        return self.padding, jax.core.max_dim(reach - self.size - self.padding, 0)

    @property
    def starts(self) -> Array:
        """Where each window begins in the axis, without its padding."""
        return lax.iota(jnp.int32, self.out) * self.stride - self.padding


def windows_of(
    x: Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    dilation: Sequence[int] | int,
    ceil_mode: bool,
    rank: int,
) -> list[Windows]:
    """Return the windows of each spatial axis."""
    kernel = spread(kernel, rank)
    settings = zip(
        x.shape[-rank:],
        kernel,
        spread(stride, rank) if stride else kernel,
        spread(padding, rank),
        spread(dilation, rank),
        strict=True,
    )
    return [Windows(*s, out=_out(*s, ceil_mode)) for s in settings]


def _out(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return room // stride + 1
    # A window that would begin in the right padding is dropped.
    last = (size + padding - 1) // stride + 1
    return jax.core.min_dim((room + stride - 1) // stride + 1, last)


def reduce_windows(
    x: Any, init: Any, function: Callable[..., Any], windows: Sequence[Windows]
) -> Any:
    """Reduce each window of the trailing axes."""
    lead = (x[0] if isinstance(x, tuple) else x).ndim - len(windows)
    return lax.reduce_window(
        x,
        init,
        function,
        (1,) * lead + tuple(w.kernel for w in windows),
        (1,) * lead + tuple(w.stride for w in windows),
        ((0, 0),) * lead + tuple(w.pads for w in windows),
        window_dilation=(1,) * lead + tuple(w.dilation for w in windows),
    )


def max_pool(
    x: Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
    *,
    rank: int,
) -> Array:
    """Take the greatest element of each window."""
    args = (kernel_size, stride, padding, dilation, ceil_mode, rank)
    windows = windows_of(x, *args)
    y: Array = reduce_windows(x, lowest(x.dtype), lax.max, windows)
    return y


def flat_indices(x: Array, rank: int) -> Array:
    """Return each element's index within its plane."""
    shape = x.shape[-rank:]
    size = reduce(lambda a, b: a * b, shape)
    return jnp.broadcast_to(lax.iota(jnp.int64, size).reshape(shape), x.shape)


def _later(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return the larger of two (value, index) pairs; of equals the first, of NaN the last."""
    first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    if jnp.issubdtype(a[0].dtype, jnp.floating):
        odd, other = a[0] != a[0], b[0] != b[0]
        first = jnp.where(odd & other, a[1] > b[1], first | odd)
    return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])


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
    args = (kernel_size, stride, padding, dilation, ceil_mode, rank)
    windows = windows_of(x, *args)
    init = (lowest(x.dtype), np.int64(np.iinfo(np.int64).max))
    pair = (x, flat_indices(x, rank))
    y, indices = reduce_windows(pair, init, _later, windows)
    return y, indices


def _counts(w: Windows, include_pad: bool) -> Array:
    """Return how many elements of the axis each window averages."""
    ends = jnp.minimum(w.starts + w.kernel, w.size + w.padding)
    starts = w.starts
    if not include_pad:
        starts, ends = jnp.maximum(starts, 0), jnp.minimum(ends, w.size)
    return ends - starts


def avg_pool(
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
    """Average each window as torch counts its elements."""
    windows = windows_of(x, kernel_size, stride, padding, 1, ceil_mode, rank)
    wide = widen(x)
    zero = np.zeros((), wide.dtype)[()]
    total: Array = reduce_windows(wide, zero, lax.add, windows)
    whole = all(w.padding == 0 for w in windows) or count_include_pad
    if divisor_override is not None:
        divisor = jnp.asarray(divisor_override, wide.dtype)
    elif whole and not ceil_mode:
        divisor = jnp.asarray(np.prod([w.kernel for w in windows]), wide.dtype)
    else:
        counts = (_counts(w, count_include_pad) for w in windows)
        divisor = reduce(lambda a, b: a[..., None] * b, counts).astype(wide.dtype)
    if jnp.issubdtype(wide.dtype, jnp.integer):
        return lax.div(total, jnp.broadcast_to(divisor, total.shape))
    return (total / divisor).astype(x.dtype)


_RULES: dict[str, Callable[..., Any]] = {
    "max_pool{}d.default": max_pool,
    "max_pool{}d_with_indices.default": _max_pool_with_indices,
    "avg_pool{}d.default": avg_pool,
}


def overload(name: str, rank: int) -> Any:
    """Return an overload such as "max_pool{}d.default" of a rank."""
    packet, overload = name.format(rank).split(".")
    return getattr(getattr(aten, packet), overload)


for _rank in (1, 2, 3):
    for _name, _rule in _RULES.items():
        lowers(overload(_name, _rank))(partial(_rule, rank=_rank))
