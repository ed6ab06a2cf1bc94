"""Running sums and their like along an axis that may be empty, which XLA does not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax
from jax.errors import InconclusiveDimensionOperation


def running(function: Callable[..., Array], x: Array, dim: int) -> Array:
    """Run lax.cumsum and the like along an axis; one of dynamic size gets a place more."""
    if isinstance(x.shape[dim], int):
        return function(x, axis=dim)
    more = [(0, int(d == dim), 0) for d in range(x.ndim)]
    y = function(lax.pad(x, jnp.zeros((), x.dtype), more), axis=dim)
    return lax.slice_in_dim(y, 0, x.shape[dim], axis=dim)


def not_empty(x: Array, *dims: int) -> Array:
    """Return an array to read places of: an axis that may be 0 long gets a place more."""
    more = [
        (0, int(d in dims and not isinstance(size, int) and _may_be_zero(size)), 0)
        for d, size in enumerate(x.shape)
    ]
    if not any(high for _, high, _ in more):
        return x
    return lax.pad(x, jnp.zeros((), x.dtype), more)


def _may_be_zero(size: Any) -> bool:
    """Whether the ranges of the dimensions leave open that a size is 0."""
    try:
        return not bool(size >= 1)
    except InconclusiveDimensionOperation:
        return True
