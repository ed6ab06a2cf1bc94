"""Grouped convolutions for XLA's CPU compiler, which has no fast one of its own.

Its loop for `feature_group_count` > 1 takes 3 to 50 times as long as one of these
(benchmarks/grouped_convolution.py). The TPU's program keeps the convolution.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array, lax

# More products than this in one expression, or more convolutions for one, cost more in
# compile time than they give.
_MOST_PRODUCTS = 80
_MOST_GROUPS = 8


@dataclass(frozen=True)
class Window:
    """How a convolution walks over its input [N, spatial..., C].

    Attributes:
        stride: per spatial dimension, in elements.
        pads: elements added (before, after); negative ones are cut.
        dilation: distance between the kernel's taps.
        groups: of channels, each with its own kernels.
    """

    stride: Sequence[int]
    pads: Sequence[tuple[int, int]]
    dilation: Sequence[int]
    groups: int


def fast_on_cpu(x: Array, kernel: Array, window: Window) -> bool:
    """Whether `convolve_on_cpu` beats XLA's grouped convolution.

    Args:
        x: [N, spatial..., C].
        kernel: [spatial..., C / groups, O].
        window: of the convolution.
    """
    real = jnp.issubdtype(x.dtype, jnp.floating)
    return (
        real and window.groups > 1 and (_few(kernel) or window.groups <= _MOST_GROUPS)
    )


def convolve_on_cpu(x: Array, kernel: Array, window: Window) -> Array:
    """Return the convolution [N, spatial..., O]; arguments as in `fast_on_cpu`."""
    return (_sum_of_taps if _few(kernel) else _each_group)(x, kernel, window)


def _few(kernel: Array) -> bool:
    return math.prod(kernel.shape[:-1]) <= _MOST_PRODUCTS


def _sum_of_taps(x: Array, kernel: Array, window: Window) -> Array:
    """Add shifted inputs times a tap each: one loop over the output after fusion."""
    inner, groups = kernel.shape[-2], window.groups
    taps = kernel.reshape(*kernel.shape[:-1], groups, -1)
    wide = jnp.promote_types(x.dtype, jnp.float32)
    products = (
        grouped[..., channel, None] * taps[(*tap, channel)]
        for tap, part in _shifted(x, kernel.shape[:-2], window)
        for grouped in [part.reshape(*part.shape[:-1], groups, inner).astype(wide)]
        for channel in range(inner)
    )
    total = functools.reduce(operator.add, products)
    return total.reshape(*total.shape[:-2], -1).astype(x.dtype)


def _shifted(
    x: Array, sizes: Sequence[int], window: Window
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield each tap's position and the elements of x that it meets."""
    pads = [(a, b, 0) for a, b in window.pads]
    padded = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *pads, (0, 0, 0)])
    spans = [
        (length - d * (size - 1) - 1) // s * s + 1
        for length, size, s, d in zip(
            padded.shape[1:-1], sizes, window.stride, window.dilation, strict=True
        )
    ]
    for tap in itertools.product(*map(range, sizes)):
        start = [t * d for t, d in zip(tap, window.dilation, strict=True)]
        stop = [a + span for a, span in zip(start, spans, strict=True)]
        yield (
            tap,
            lax.slice(
                padded,
                (0, *start, 0),
                (x.shape[0], *stop, x.shape[-1]),
                (1, *window.stride, 1),
            ),
        )


def _each_group(x: Array, kernel: Array, window: Window) -> Array:
    spatial = "DHW"[3 - len(window.stride) :]
    groups = window.groups
    outputs = [
        lax.conv_general_dilated(
            part,
            own,
            tuple(window.stride),
            tuple(window.pads),
            rhs_dilation=tuple(window.dilation),
            dimension_numbers=(f"N{spatial}C", f"{spatial}IO", f"N{spatial}C"),
        )
        for part, own in zip(
            jnp.split(x, groups, -1), jnp.split(kernel, groups, -1), strict=True
        )
    ]
    return jnp.concatenate(outputs, -1)
