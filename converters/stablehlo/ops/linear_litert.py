"""Matrix products for LiteRT, which has kernels of floats only for values that a call computes."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.ops.linear import int_mm
from tpu_export.converters.stablehlo.registry import lowers

# float32 has every integer up to this one: sums that stay below are exact in any order.
_EXACT = 2**24
_GREATEST = {"int8": 128, "uint8": 255}


@lowers(torch.ops.aten._int_mm.default, target="litert")
def int_mm_in_floats(x: Array, y: Array) -> Array:
    """Sum so many products at once that float32 holds the sum."""
    count, kinds = x.shape[1], (x.dtype.name, y.dtype.name)
    if not _GREATEST.keys() >= {*kinds} or not isinstance(count, int):
        return int_mm(x, y)
    step = _EXACT // (_GREATEST[kinds[0]] * _GREATEST[kinds[1]])
    ends = range(0, count, step)
    pairs = [(x[:, i : i + step], y[i : i + step]) for i in ends]
    sums = [a.astype(jnp.float32) @ b.astype(jnp.float32) for a, b in pairs]
    return reduce(jnp.add, [part.astype(jnp.int32) for part in sums])
