"""Resizing of uint8 images as torch's CPU kernel does it: in fixed point, an axis at a time.

The weights of an axis are rounded to whole numbers of 2 ** -bits, with as many bits as
keep the largest in int16; each axis, the last first, is rounded back to uint8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tpu_export.converters.stablehlo.ops.resize_weights import Scaling, axis_weights

_MOST_BITS = 22
_EXACT_TAPS = 2**24 // 255**2  # products of bytes whose sum float32 holds


def fixed_point(
    x: Array,
    output_size: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
    kind: str,
) -> Array:
    """Interpolate the last axes of x: [..., height, width] uint8."""
    axes = zip(range(x.ndim - 2, x.ndim), output_size, scales, strict=True)
    for dim, out, scale in reversed(list(axes)):
        scaling = Scaling(x.shape[dim], out, align_corners, scale, np.dtype(np.float64))
        weights = axis_weights(scaling, kind, copies=True)
        if weights is not None:
            x = _resized(
                x, dim, *_rounded(weights.values, np if scaling.static else jnp)
            )
    return x


def _rounded(matrix: Any, xp: Any) -> tuple[Any, Any]:
    """Return the weights as whole numbers of 2 ** -bits, and the bits."""
    powers = 2.0 ** np.arange(1, _MOST_BITS + 1)
    fits = xp.trunc(xp.max(matrix) * powers + 0.5) < 2**15
    bits = xp.sum(fits).astype(np.int32)  # the power grows: those that fit come first
    scaled = matrix * 2.0**bits
    away = xp.trunc(scaled + xp.where(scaled < 0, -0.5, 0.5))
    return away.astype(np.int32), bits


def _resized(x: Array, dim: int, weights: Any, bits: Any) -> Array:
    half = 1 << (bits - 1)
    value = jnp.right_shift(_product(x, dim, weights) + half, bits)
    return jnp.moveaxis(jnp.clip(value, 0, 255).astype(np.uint8), -1, dim)


def _product(x: Array, dim: int, weights: Any) -> Array:
    """Sum x, weighted, along dim, which becomes the last, as int32.

    Units for matrices multiply floats: a byte of the weights at a time is exact there.
    """
    dims = (((dim,), (1,)), ((), ()))
    known = isinstance(weights, np.ndarray)
    if not known or np.count_nonzero(weights, axis=1).max() > _EXACT_TAPS:
        return lax.dot_general(x.astype(np.int32), jnp.asarray(weights), dims)
    high, low = (
        lax.dot_general(x.astype(np.float32), byte.astype(np.float32), dims)
        for byte in (weights >> 8, weights & 255)
    )
    return high.astype(np.int32) * 256 + low.astype(np.int32)
