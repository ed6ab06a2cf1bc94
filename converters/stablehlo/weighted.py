"""Sums of a few weighted elements as a product with a matrix of mostly zeros.

0 times infinity is NaN, so that the plain product would spread what is not finite to sums
that do not read it. It is counted apart: by small whole numbers, in one pass of a TPU's matrix
unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current

# More than any count of infinities; a sum that is as large is NaN.
LOST = 2.0**16


class Weights(NamedTuple):
    """The weights of sums [out, size], NumPy's where they are known.

    Attributes:
        values: the weights; 0 where a sum does not read an element.
        signs: whether infinity stays itself (positive) or becomes its opposite (negative).
        reads: how often an element is read; LOST and more where by a weight of 0.
    """

    values: Any
    signs: Any
    reads: Any

    @classmethod
    def of(cls, taps: Sequence[tuple[Any, Any]]) -> Weights:
        """Add up taps: (where it reads [out, size], its weights [out, 1] or [out, size])."""
        xp: Any = np if isinstance(taps[0][0], np.ndarray) else jnp
        parts = [
            (
                xp.where(hot, weight, 0),
                xp.where(hot, xp.sign(weight), 0),
                xp.where(hot, xp.where(weight == 0, LOST, 1), 0),
            )
            for hot, weight in taps
        ]
        return cls(*(sum(rest, first) for first, *rest in zip(*parts, strict=True)))


def weighted_sum(x: Array, dim: int, weights: Weights) -> Array:
    """Sum the elements of a floating-point x along dim, of which `out` sums take its place."""
    highest = lax.Precision.HIGHEST
    if (
        current().target == "litert"
    ):  # int8 models have nothing else, and pay for each product
        return _product(x, dim, weights.values, highest)
    up, down = x == jnp.inf, x == -jnp.inf
    total = _product(
        jnp.where(jnp.isfinite(x), x, jnp.zeros((), x.dtype)),
        dim,
        weights.values,
        highest,
    )
    balance = up.astype(x.dtype) - down.astype(x.dtype)
    found = jnp.where(x != x, jnp.asarray(LOST, x.dtype), jnp.abs(balance))
    balance = _product(balance, dim, weights.signs, None)
    found = _product(found, dim, weights.reads, None)
    infinite = jnp.where(balance > 0, jnp.inf, -jnp.inf).astype(x.dtype)
    alike = (found < LOST) & (jnp.abs(balance) == found)
    odd = jnp.where(alike, infinite, jnp.asarray(jnp.nan, x.dtype))
    return jnp.where(found == 0, total, odd)


def _product(x: Array, dim: int, matrix: Any, precision: Any) -> Array:
    dims = (((dim,), (1,)), ((), ()))
    y = lax.dot_general(x, jnp.asarray(matrix, x.dtype), dims, precision=precision)
    return jnp.moveaxis(y, -1, dim)
