"""New tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.operands import DTYPES, Number, cast, torch_dtype
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _dtype(dtype: torch.dtype | None, default: torch.dtype = torch.float32) -> Any:
    return DTYPES[dtype or default]


def _range(start: Any, end: Any, step: Any, dtype: torch.dtype | None) -> Array:
    floats = any(isinstance(v, float) for v in (start, end, step))
    target = _dtype(dtype, torch.float32 if floats else torch.int64)
    wide = jnp.float64 if floats else jnp.int64
    return jnp.arange(start, end, step, dtype=wide).astype(target)


@lowers(aten.arange.default)
def arange(end: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return _range(0, end, 1, dtype)


@lowers(aten.arange.start)
def arange_start(
    start: Any, end: Any, *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return _range(start, end, 1, dtype)


@lowers(aten.arange.start_step)
def arange_step(
    start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return _range(start, end, step, dtype)


@lowers(aten.full.default)
def full(
    size: Sequence[Any], value: Number, *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return jnp.full(tuple(size), value, _dtype(dtype, torch_dtype(value)))


@lowers(aten.zeros.default, aten.empty.memory_format)
def zeros(size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return jnp.zeros(tuple(size), _dtype(dtype))


@lowers(aten.ones.default)
def ones(size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return jnp.ones(tuple(size), _dtype(dtype))


@lowers(aten.zeros_like.default, aten.empty_like.default)
def zeros_like(x: Array, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return jnp.zeros(x.shape, DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.ones_like.default)
def ones_like(x: Array, *, dtype: torch.dtype | None = None, **_: Any) -> Array:
    return jnp.ones(x.shape, DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.full_like.default)
def full_like(
    x: Array, value: Number, *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return jnp.full(x.shape, value, DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.new_zeros.default, aten.new_empty.default)
def new_zeros(
    x: Array, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return jnp.zeros(tuple(size), DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.new_ones.default)
def new_ones(
    x: Array, size: Sequence[Any], *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return jnp.ones(tuple(size), DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.new_full.default)
def new_full(
    x: Array,
    size: Sequence[Any],
    value: Number,
    *,
    dtype: torch.dtype | None = None,
    **_: Any,
) -> Array:
    return jnp.full(tuple(size), value, DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.scalar_tensor.default)
def scalar_tensor(
    value: Number, *, dtype: torch.dtype | None = None, **_: Any
) -> Array:
    return cast(value, _dtype(dtype))
