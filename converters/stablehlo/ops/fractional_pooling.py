"""Max pooling over windows whose places are drawn at random (Graham, arXiv:1412.6071)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _starts(sample: Array, size: int, window: int, count: int) -> Array:
    """Return where each of `count` windows begins: torch's sequence for one random number."""
    steps = jnp.arange(count, dtype=sample.dtype)
    last = size - window
    if count == 1:
        return jnp.full((*sample.shape, 1), last, jnp.int32)
    alpha = jnp.asarray(last / (count - 1), sample.dtype)
    sample = sample[..., None]
    first = jnp.floor((steps + sample) * alpha) - jnp.floor(sample * alpha)
    return jnp.where(steps == count - 1, last, first).astype(jnp.int32)


def _pool(
    x: Array, kernel: Sequence[int], output: Sequence[int], samples: Array
) -> tuple[Array, Array]:
    """Pool x [N?, C, *size]; samples [N, C, n] hold one number an axis, in order."""
    n = len(kernel)
    batched = x if x.ndim == n + 2 else x[None]
    size = batched.shape[2:]
    lead = batched.shape[:2]
    places = [
        _starts(samples[: lead[0], :, d], size[d], kernel[d], output[d])
        for d in range(n)
    ]
    flat = batched.reshape(*lead, -1)
    best = index = None
    for offset in itertools.product(*map(range, kernel)):
        at = jnp.zeros((*lead, *[1] * n), jnp.int32)
        for d in range(n):
            spread = [output[d] if a == d else 1 for a in range(n)]
            at = at * size[d] + (places[d] + offset[d]).reshape(*lead, *spread)
        at = at.reshape(*lead, -1)
        value = jnp.take_along_axis(flat, at, -1)
        if best is None or index is None:
            best, index = value, at
            continue
        better = (value > best) | jnp.isnan(value)
        best, index = jnp.where(better, value, best), jnp.where(better, at, index)
    assert best is not None
    assert index is not None
    shape = (*x.shape[:-n], *output)
    return best.reshape(shape), index.reshape(shape).astype(jnp.int64)


@lowers(aten.fractional_max_pool2d.default)
def fractional_max_pool2d(
    x: Array, kernel_size: Sequence[int], output_size: Sequence[int], samples: Array
) -> tuple[Array, Array]:
    # In two dimensions torch takes the numbers in the other order than in three.
    return _pool(x, kernel_size, output_size, samples[..., ::-1])


@lowers(aten.fractional_max_pool3d.default)
def fractional_max_pool3d(
    x: Array, kernel_size: Sequence[int], output_size: Sequence[int], samples: Array
) -> tuple[Array, Array]:
    return _pool(x, kernel_size, output_size, samples)
