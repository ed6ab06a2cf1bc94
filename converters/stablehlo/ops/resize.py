"""Resizing of images: nearest by index, the rest as one small matrix an axis.

A matrix product keeps the TPU's matrix unit busy where gathers of neighbours would not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import widen
from tpu_export.converters.stablehlo.ops.resize_uint8 import fixed_point
from tpu_export.converters.stablehlo.ops.resize_weights import Scaling, axis_weights
from tpu_export.converters.stablehlo.reals import scaled_size
from tpu_export.converters.stablehlo.registry import lowers
from tpu_export.converters.stablehlo.weighted import weighted_sum

aten = torch.ops.aten


def _nearest_axis(
    x: Array, dim: int, scaling: Scaling, exact: bool, copies: bool
) -> Array:
    xp: Any = np if scaling.static else jnp
    raw = xp.floor(scaling.places(0.5 if exact else 0.0) * scaling.step)
    index = xp.minimum(raw.astype(np.int32), scaling.size - 1)
    if copies:
        index = xp.where(scaling.keeps_size, xp.arange(scaling.out), index)
    if scaling.static:
        if np.array_equal(index, np.arange(scaling.size)):
            return x
        times, rest = divmod(scaling.out, scaling.size)
        if not rest and np.array_equal(index, np.arange(scaling.out) // times):
            return _repeated(x, dim, times)
    return jnp.take(x, jnp.asarray(index), axis=dim, mode="clip")


def _repeated(x: Array, dim: int, times: int) -> Array:
    shape = (*x.shape[: dim + 1], times, *x.shape[dim + 1 :])
    spread = jnp.broadcast_to(jnp.expand_dims(x, dim + 1), shape)
    return spread.reshape(*x.shape[:dim], x.shape[dim] * times, *x.shape[dim + 1 :])


def interpolate(
    x: Array,
    output_size: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
    kind: str,
) -> Array:
    """Resize the last dimensions by weights of a kind: "linear", "cubic", or either with "_aa"."""
    if x.dtype == jnp.uint8 and len(output_size) == 2:
        return fixed_point(x, output_size, align_corners, scales, kind)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise UnsupportedOptionError(
            f"torch does not interpolate {x.dtype}", hint="cast to float32 before"
        )
    y = widen(x)
    first = x.ndim - len(output_size)
    for dim, (out, scale) in enumerate(zip(output_size, scales, strict=True), first):
        scaling = Scaling(x.shape[dim], out, align_corners, scale, np.dtype(y.dtype))
        weights = axis_weights(scaling, kind, copies=kind != "cubic")
        if weights is not None:
            y = weighted_sum(y, dim, weights)
    return y.astype(x.dtype)


def _nearest(
    x: Array, output_size: Sequence[int], scales: Sequence[float | None], exact: bool
) -> Array:
    first = x.ndim - len(output_size)
    # torch's kernel for images copies an axis that keeps its size, whatever the factor.
    copies = len(output_size) == 2 and not exact
    for dim, (out, scale) in enumerate(zip(output_size, scales, strict=True), first):
        scaling = Scaling(x.shape[dim], out, False, scale, np.dtype(np.float32))
        x = _nearest_axis(x, dim, scaling, exact, copies)
    return x


def sizes_of(
    x: Array, output_size: Sequence[int] | None, factors: Sequence[float] | None
) -> tuple[list[int], list[float | None]]:
    """Return the sizes of the result, and the factors that were given."""
    if output_size is not None:
        return list(output_size), [None] * len(output_size)
    assert factors is not None
    sizes = x.shape[-len(factors) :]
    outs = [_scaled_size(n, f) for n, f in zip(sizes, factors, strict=True)]
    return outs, list(factors)


def _scaled_size(size: int, factor: float) -> int:
    if isinstance(size, int):
        return math.floor(size * factor)
    if (1 / factor).is_integer():
        return size // int(1 / factor)
    if (found := scaled_size(size, factor)) is not None:
        return found
    raise UnsupportedOptionError(
        f"a dynamic size cannot be scaled by {factor}",
        hint="use a factor such as 2, 1.5 or 0.25, or pass size= to interpolate",
    )


def _register(name: str, rank: int, kind: str) -> None:
    packet = getattr(aten, f"{name}{rank}d" if "_aa" not in kind else name)
    corners = not kind.startswith("nearest")

    def run(x: Array, outs: Sequence[int], align: bool, scales: Any) -> Array:
        if corners:
            return interpolate(x, outs, align, scales, kind)
        return _nearest(x, outs, scales, exact=kind == "nearest_exact")

    def vec(x: Array, output_size: Any, *rest: Any) -> Array:
        outs, scales = sizes_of(x, output_size, rest[-1])
        return run(x, outs, bool(corners and rest[0]), scales)

    def default(x: Array, output_size: Any, *rest: Any, **named: float | None) -> Array:
        align, given = (rest[0], rest[1:]) if corners else (False, rest)
        scales = [*given, *named.values()]
        scales += [None] * (rank - len(scales))
        return run(x, output_size, align, scales)

    lowers(packet.vec)(vec)
    lowers(packet.default)(default)


for _rank in (1, 2, 3):
    _register("upsample_nearest", _rank, "nearest")
    _register("_upsample_nearest_exact", _rank, "nearest_exact")
_register("upsample_linear", 1, "linear")
_register("upsample_bilinear", 2, "linear")
_register("upsample_trilinear", 3, "linear")
_register("upsample_bicubic", 2, "cubic")
_register("_upsample_bilinear2d_aa", 2, "linear_aa")
_register("_upsample_bicubic2d_aa", 2, "cubic_aa")
