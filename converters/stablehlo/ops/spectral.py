"""Fourier transforms with torch's normalizations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import axis, cast
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

NONE, BY_ROOT_N, BY_N = range(3)


def _normalized(x: Array, count: Any, normalization: int) -> Array:
    if normalization == NONE:
        return x
    scale = math.sqrt(count) if normalization == BY_ROOT_N else count
    return x / cast(float(scale), jnp.real(x).dtype)


def _count(x: Array, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


@lowers(aten._fft_r2c.default)
def fft_r2c(x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    """The last of the dims is the one that may be halved."""
    if onesided:
        y = jnp.fft.rfft(x, axis=dim[-1])
        y = jnp.fft.fftn(y, axes=tuple(dim[:-1])) if len(dim) > 1 else y
    else:
        y = jnp.fft.fftn(x, axes=tuple(dim))
    return _normalized(y, _count(x, dim), normalization)


@lowers(aten._fft_c2c.default)
def fft_c2c(x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    if not dim:
        return x
    if forward:
        return _normalized(
            jnp.fft.fftn(x, axes=tuple(dim)), _count(x, dim), normalization
        )
    y = jnp.fft.ifftn(x, axes=tuple(dim), norm="forward")
    return _normalized(y, _count(x, dim), normalization)


@lowers(aten._fft_c2r.default)
def fft_c2r(
    x: Array, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Array:
    if len(dim) > 1:
        x = jnp.fft.ifftn(x, axes=tuple(dim[:-1]), norm="forward")
    y = jnp.fft.irfft(x, last_dim_size, axis=dim[-1], norm="forward")
    return _normalized(y, _count(y, dim), normalization)


def _one(function: Callable[..., Array]) -> Callable[..., Array]:
    def rule(
        x: Array, n: int | None = None, dim: int = -1, norm: str | None = None
    ) -> Array:
        return function(_floating(x), n, dim, norm)

    return rule


def _floating(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)


def _many(function: Callable[..., Array]) -> Callable[..., Array]:
    def rule(
        x: Array,
        s: Sequence[int] | None = None,
        dim: Sequence[int] | None = None,
        norm: str | None = None,
    ) -> Array:
        if dim is None:
            dim = range(x.ndim - len(s), x.ndim) if s else range(x.ndim)
        dims = [axis(d, x.ndim) for d in dim]
        sizes = None if s is None else _sizes(x, s, dims)
        return function(_floating(x), sizes, dims, norm)

    return rule


def _sizes(x: Array, s: Sequence[int], dims: Sequence[int]) -> list[int]:
    return [x.shape[d] if n == -1 else n for n, d in zip(s, dims, strict=True)]


def _two(function: Callable[..., Array]) -> Callable[..., Array]:
    many = _many(function)

    def rule(
        x: Array,
        s: Sequence[int] | None = None,
        dim: Sequence[int] = (-2, -1),
        norm: str | None = None,
    ) -> Array:
        return many(x, s, dim, norm)

    return rule


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    lowers(getattr(aten, f"fft_{_name}").default)(_one(getattr(jnp.fft, _name)))
for _name in ("fft", "ifft", "rfft", "irfft"):
    _function = getattr(jnp.fft, f"{_name}n")
    lowers(getattr(aten, f"fft_{_name}n").default)(_many(_function))
    lowers(getattr(aten, f"fft_{_name}2").default)(_two(_function))


@lowers(aten.fft_fftshift.default)
def fftshift(x: Array, dim: Sequence[int] | None = None) -> Array:
    return jnp.fft.fftshift(x, None if dim is None else tuple(dim))


@lowers(aten.fft_ifftshift.default)
def ifftshift(x: Array, dim: Sequence[int] | None = None) -> Array:
    return jnp.fft.ifftshift(x, None if dim is None else tuple(dim))


@lowers(aten.fft_fftfreq.default)
def fftfreq(n: int, d: float = 1.0, **_: object) -> Array:
    return jnp.fft.fftfreq(n, d, dtype=jnp.float32)


@lowers(aten.fft_rfftfreq.default)
def rfftfreq(n: int, d: float = 1.0, **_: object) -> Array:
    return jnp.fft.rfftfreq(n, d, dtype=jnp.float32)
