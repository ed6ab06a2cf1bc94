"""Short-time Fourier transforms, over any number of frames."""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.ops.padding import pad
from tpu_export.converters.stablehlo.ops.slicing import Dim, unfold
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _window(window: Array | None, length: int, n_fft: int) -> Array:
    """Return the window in the middle of n_fft places."""
    window = jnp.ones(length, jnp.float32) if window is None else window
    left = (n_fft - length) // 2
    return jnp.pad(window, (left, n_fft - length - left))


@lowers(aten.stft.default)
def stft(
    x: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Array:
    if align_to_window:
        raise UnsupportedOptionError(
            "stft with align_to_window",
            hint="cut the signal to where the windows begin",
        )
    framed = unfold(x, -1, n_fft, hop_length or n_fft // 4)  # [..., frames, n_fft]
    framed = framed * _window(window, win_length or n_fft, n_fft)
    norm = "ortho" if normalized else None
    if return_complex is None:
        return_complex = jnp.iscomplexobj(framed)
    if onesided is None:
        onesided = not jnp.iscomplexobj(framed)
    y = jnp.fft.rfft(framed, norm=norm) if onesided else jnp.fft.fft(framed, norm=norm)
    y = y.swapaxes(-1, -2)
    return y if return_complex else jnp.stack([y.real, y.imag], axis=-1)


@lowers(aten.stft.center)
def stft_center(
    x: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Array:
    if center:
        rows = x.reshape(1, -1, x.shape[-1])
        x = pad(rows, [n_fft // 2] * 2, pad_mode).reshape(*x.shape[:-1], -1)
    rest = (window, normalized, onesided, return_complex, align_to_window)
    return stft(x, n_fft, hop_length, win_length, *rest)


@lowers(aten.istft.default)
def istft(
    x: Array,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Array | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Dim | None = None,
    return_complex: bool = False,
) -> Array:
    hop, norm = hop_length or n_fft // 4, "ortho" if normalized else None
    columns = x.swapaxes(-1, -2)  # [..., frames, frequencies]
    if return_complex:
        frames = jnp.fft.ifft(columns, norm=norm)
    else:  # of both sides, one is read, as torch does
        frames = jnp.fft.irfft(columns, n_fft, norm=norm)
    taper = _window(window, win_length or n_fft, n_fft)
    whole = jnp.iscomplexobj(taper)  # its square is the envelope, complex too
    taper = taper.astype(frames.dtype if whole else frames.real.dtype)
    count = frames.shape[-2]
    weights = jnp.broadcast_to(jnp.square(taper), (count, n_fft))
    signal, envelope = _overlapped(frames * taper, hop), _overlapped(weights, hop)
    total = n_fft + hop * (count - 1)
    start = n_fft // 2 if center else 0
    if length is None:
        stop = total - start
        return (signal / envelope)[..., start:stop]
    return _of_length(signal / envelope, start, length)


def _overlapped(frames: Array, hop: int) -> Array:
    """Return the sum of frames, each `hop` further on: [..., n, size] -> [..., length]."""
    count, size = frames.shape[-2:]
    places = lax.iota(jnp.int32, count)[:, None] * hop + lax.iota(jnp.int32, size)
    empty = jnp.zeros((*frames.shape[:-2], size + hop * (count - 1)), frames.dtype)
    return empty.at[..., places].add(frames, mode="promise_in_bounds")


def _of_length(x: Array, start: int, length: Dim) -> Array:
    """Return `length` samples from `start`, zeros behind the end."""
    x = x[..., start:]
    config = [(0, 0, 0)] * (x.ndim - 1) + [(0, length, 0)]
    wide = lax.pad(x, jnp.zeros((), x.dtype), config)
    return lax.slice_in_dim(wide, 0, length, axis=-1)
