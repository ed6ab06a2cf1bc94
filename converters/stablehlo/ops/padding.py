"""Padding: constant, reflected, replicated, circular; a negative pad crops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import Number, cast
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _pairs(pad: Sequence[int]) -> list[tuple[int, int]]:
    """Return (low, high) of the last axis first, as torch lists them."""
    return list(zip(pad[::2], pad[1::2], strict=True))


def _cropped(x: Array, dim: int, low: int, high: int) -> Array:
    if low >= 0 and high >= 0:
        return x
    start, stop = max(-low, 0), x.shape[dim] - max(-high, 0)
    return lax.slice_in_dim(x, start, stop, axis=dim)


def _is_static(*sizes: object) -> bool:
    return all(isinstance(size, int) for size in sizes)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(x: Array, pad: Sequence[int], value: Number = 0) -> Array:
    config = [(0, 0, 0)] * x.ndim
    for back, (low, high) in enumerate(_pairs(pad), start=1):
        if _is_static(low, high):  # LiteRT has no negative pad
            x = _cropped(x, x.ndim - back, low, high)
            low, high = max(low, 0), max(high, 0)
        config[-back] = (low, high, 0)
    return lax.pad(x, cast(value, x.dtype), config)


def _reflected(place: Array, size: int | Array) -> Array:
    return (size - 1) - jnp.abs((size - 1) - jnp.abs(place))


def _replicated(place: Array, size: int | Array) -> Array:
    return jnp.clip(place, 0, size - 1)


def _circular(place: Array, size: int | Array) -> Array:
    return jnp.mod(place, size)


def _reflected_edges(x: Array, dim: int, low: int, high: int) -> list[Array]:
    size = x.shape[dim]
    return [
        lax.rev(lax.slice_in_dim(x, 1, low + 1, axis=dim), (dim,)),
        lax.rev(lax.slice_in_dim(x, size - 1 - high, size - 1, axis=dim), (dim,)),
    ]


def _replicated_edges(x: Array, dim: int, low: int, high: int) -> list[Array]:
    size = x.shape[dim]
    first = lax.slice_in_dim(x, 0, 1, axis=dim)
    last = lax.slice_in_dim(x, size - 1, size, axis=dim)

    def repeated(edge: Array, count: int) -> Array:
        shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
        return jnp.broadcast_to(edge, shape)

    return [repeated(first, low), repeated(last, high)]


def _circular_edges(x: Array, dim: int, low: int, high: int) -> list[Array]:
    size = x.shape[dim]
    return [
        lax.slice_in_dim(x, size - low, size, axis=dim),
        lax.slice_in_dim(x, 0, high, axis=dim),
    ]


Places = Callable[[Array, "int | Array"], Array]
Edges = Callable[[Array, int, int, int], list[Array]]
_MODES: dict[str, tuple[Places, Edges]] = {
    "reflect": (_reflected, _reflected_edges),
    "replicate": (_replicated, _replicated_edges),
    "circular": (_circular, _circular_edges),
}


def _extended(x: Array, pad: Sequence[int], mode: str) -> Array:
    places, edges = _MODES[mode]
    for back, (low, high) in enumerate(_pairs(pad), start=1):
        dim = x.ndim - back
        crop = (min(low, 0), min(high, 0))
        if (
            mode == "circular"
        ):  # wraps what the crop leaves; the others mirror the original
            x, crop = _cropped(x, dim, *crop), (0, 0)
        low, high = max(low, 0), max(high, 0)
        size = x.shape[dim]
        if isinstance(size, int):
            before, after = edges(x, dim, low, high)
            parts = [before] * (low > 0) + [x] + [after] * (high > 0)
            x = jnp.concatenate(parts, axis=dim) if len(parts) > 1 else x
        else:  # slices of a symbolic axis cannot be proved to fit
            index = places(jnp.arange(-low, size + high), size)
            x = jnp.take(x, index, axis=dim, mode="clip")
        x = _cropped(x, dim, *crop)
    return x


@lowers(
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
)
def reflection_pad(x: Array, padding: Sequence[int]) -> Array:
    return _extended(x, padding, "reflect")


@lowers(
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
)
def replication_pad(x: Array, padding: Sequence[int]) -> Array:
    return _extended(x, padding, "replicate")


@lowers(aten._pad_circular.default)
def pad_circular(x: Array, pad: Sequence[int]) -> Array:
    return _extended(x, pad, "circular")


@lowers(aten.pad.default)
def pad(
    x: Array, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Array:
    if mode == "constant":
        return constant_pad_nd(x, pad, 0 if value is None else value)
    return _extended(x, pad, mode)
