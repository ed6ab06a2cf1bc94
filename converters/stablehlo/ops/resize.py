"""Resizing of images: nearest by index, the rest as one small matrix an axis.

A matrix product keeps the TPU's matrix unit busy where gathers of neighbours would not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import widen
from tpu_export.converters.stablehlo.reals import scaled_size
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@dataclass(frozen=True)
class Scaling:
    """How one axis is resized; scale is the user's factor where torch remembers it."""

    size: int
    out: int
    align_corners: bool
    scale: float | None
    dtype: np.dtype[Any]

    @property
    def static(self) -> bool:
        """Whether both sizes are numbers, so that the map is a constant."""
        return isinstance(self.size, int) and isinstance(self.out, int)

    @property
    def step(self) -> Any:
        """Return how far one step of the output goes in the input."""
        number = self.dtype.type if self.static else jnp.asarray
        if self.align_corners:
            if isinstance(self.out, int) and self.out <= 1:
                return self.dtype.type(0)
            return number(self.size - 1) / number(self.out - 1)
        if self.scale is not None and self.scale > 0:
            return self.dtype.type(1.0 / self.scale)
        return number(self.size) / number(self.out)

    def places(self, half: float = 0.0) -> Any:
        """Return the output's coordinates, shifted by half a pixel where asked."""
        arange: Callable[..., Any] = np.arange if self.static else jnp.arange
        return arange(self.out).astype(self.dtype) + self.dtype.type(half)

    def source(self) -> Any:
        """Return the input's coordinate of each output."""
        if self.align_corners:
            return self.places() * self.step
        return self.places(0.5) * self.step - self.dtype.type(0.5)


def _nearest_axis(x: Array, dim: int, scaling: Scaling, exact: bool) -> Array:
    xp: Any = np if scaling.static else jnp
    raw = xp.floor(scaling.places(0.5 if exact else 0.0) * scaling.step)
    index = xp.minimum(raw.astype(np.int32), scaling.size - 1)
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


def _linear_matrix(scaling: Scaling) -> Any:
    xp: Any = np if scaling.static else jnp
    source = xp.maximum(scaling.source(), 0)
    low = xp.minimum(xp.floor(source).astype(np.int32), scaling.size - 1)
    high = xp.minimum(low + 1, scaling.size - 1)
    weight = xp.clip(source - low, 0, 1)
    return _taps(scaling, [(low, 1 - weight), (high, weight)])


def _taps(scaling: Scaling, taps: Sequence[tuple[Any, Any]]) -> Any:
    """Return the matrix [out, size] that sums weighted elements."""
    xp: Any = np if scaling.static else jnp
    cols = xp.arange(scaling.size)[None, :]
    parts = [xp.where(cols == i[:, None], w[:, None], 0) for i, w in taps]
    return sum(parts[1:], start=parts[0])


def _cubic(distance: Any, a: float, xp: Any) -> Any:
    d = xp.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return xp.where(d <= 1, near, xp.where(d < 2, far, 0))


def _cubic_matrix(scaling: Scaling) -> Any:
    xp: Any = np if scaling.static else jnp
    source = scaling.source()
    base = xp.floor(source)
    offsets = [base + k for k in (-1, 0, 1, 2)]
    places = [xp.clip(o, 0, scaling.size - 1).astype(np.int32) for o in offsets]
    weights = [_cubic(source - o, -0.75, xp) for o in offsets]
    return _taps(scaling, list(zip(places, weights, strict=True)))


def _antialiased(cubic: bool) -> Callable[[Scaling], Any]:
    reach = 2.0 if cubic else 1.0

    def matrix(scaling: Scaling) -> Any:
        xp: Any = np if scaling.static else jnp
        step = scaling.step
        wide = xp.maximum(step, 1)
        centre = scaling.places(0.5) * step
        support = reach * wide
        first = xp.maximum(xp.trunc(centre - support + 0.5), 0)[:, None]
        last = xp.minimum(xp.trunc(centre + support + 0.5), scaling.size)[:, None]
        cols = xp.arange(scaling.size)[None, :]
        distance = (cols - centre[:, None] + 0.5) / wide
        tent = xp.maximum(1 - xp.abs(distance), 0)
        weight = _cubic(distance, -0.5, xp) if cubic else tent
        weight = xp.where((cols >= first) & (cols < last), weight, 0)
        return weight / xp.sum(weight, axis=1, keepdims=True)

    return matrix


_MATRICES: dict[str, Callable[[Scaling], Any]] = {
    "linear": _linear_matrix,
    "cubic": _cubic_matrix,
    "linear_aa": _antialiased(cubic=False),
    "cubic_aa": _antialiased(cubic=True),
}


def _matrix_axis(x: Array, dim: int, matrix: Array) -> Array:
    dims = (((dim,), (1,)), ((), ()))
    highest = lax.Precision.HIGHEST
    y = lax.dot_general(x, matrix.astype(x.dtype), dims, precision=highest)
    return jnp.moveaxis(y, -1, dim)


def _unchanged(scaling: Scaling, kind: str) -> bool:
    # All kernels but "cubic" copy an axis that keeps its size, whatever the factor.
    same = scaling.static and scaling.size == scaling.out
    return same and (kind != "cubic" or scaling.scale in (None, 1.0))


def _interpolate(
    x: Array,
    output_size: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
    kind: str,
) -> Array:
    y = widen(x) if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
    first = x.ndim - len(output_size)
    for dim, (out, scale) in enumerate(zip(output_size, scales, strict=True), first):
        scaling = Scaling(x.shape[dim], out, align_corners, scale, np.dtype(y.dtype))
        if _unchanged(scaling, kind):
            continue
        y = _matrix_axis(y, dim, jnp.asarray(_MATRICES[kind](scaling)))
    if jnp.issubdtype(x.dtype, jnp.integer):
        limits = np.iinfo(x.dtype)
        y = jnp.clip(jnp.round(y), limits.min, limits.max)
    return y.astype(x.dtype)


def _nearest(
    x: Array, output_size: Sequence[int], scales: Sequence[float | None], exact: bool
) -> Array:
    first = x.ndim - len(output_size)
    for dim, (out, scale) in enumerate(zip(output_size, scales, strict=True), first):
        if len(output_size) == 2 and not exact and x.shape[dim] == out:
            continue  # torch's kernel for images copies such an axis, whatever the factor
        scaling = Scaling(x.shape[dim], out, False, scale, np.dtype(np.float32))
        x = _nearest_axis(x, dim, scaling, exact)
    return x


def _sizes(
    x: Array, output_size: Sequence[int] | None, factors: Sequence[float] | None
) -> tuple[list[int], list[float | None]]:
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
            return _interpolate(x, outs, align, scales, kind)
        return _nearest(x, outs, scales, exact=kind == "nearest_exact")

    def vec(x: Array, output_size: Any, *rest: Any) -> Array:
        outs, scales = _sizes(x, output_size, rest[-1])
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
