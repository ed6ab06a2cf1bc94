"""unique() in all its forms: as many results as the data has distinct values."""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.ops.indexing import counted
from tpu_export.converters.stablehlo.registry import lowers
from tpu_export.converters.stablehlo.runs import Runs

aten = torch.ops.aten
Triple: TypeAlias = tuple[Array, Array, Array]


def _results(runs: Runs, inverse: Array | None, counts: bool) -> Triple:
    """Return values, inverse and counts; torch gives empty tensors for those not asked for."""
    size, none = counted("unique"), jnp.zeros(0, jnp.int64)
    return (
        runs.first(size),
        none if inverse is None else inverse,
        runs.lengths(size) if counts else none,
    )


@lowers(aten._unique2.default)
def unique2(
    x: Array,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Triple:
    runs = Runs.sorted(x)
    inverse = runs.inverse().reshape(x.shape) if return_inverse else None
    return _results(runs, inverse, return_counts)


@lowers(aten._unique.default)
def unique(
    x: Array, sorted: bool = True, return_inverse: bool = False
) -> tuple[Array, Array]:
    return unique2(x, sorted, return_inverse)[:2]


@lowers(aten.unique_dim.default)
def unique_dim(
    x: Array,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Triple:
    runs = Runs.rows(x, dim, True)
    values, _, counts = _results(runs, None, True)
    return jnp.moveaxis(values, 0, dim), runs.inverse(), counts


@lowers(aten.unique_consecutive.default)
def unique_consecutive(
    x: Array,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Triple:
    runs = Runs.consecutive(x, dim)
    inverse = runs.inverse() if return_inverse else None
    if inverse is not None and dim is None:
        inverse = inverse.reshape(x.shape)
    values, inverses, counts = _results(runs, inverse, return_counts)
    return jnp.moveaxis(values, 0, dim or 0), inverses, counts
