"""New tensors: ranges, constants, windows, and values read back."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.operands import (
    DTYPES,
    Operand,
    cast,
    torch_dtype,
)
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Dim = Any  # an int or a JAX dimension expression


@lowers(aten.arange.start_step)
def arange_step(
    start: Dim,
    end: Dim,
    step: Dim = 1,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Array:
    real = any(isinstance(v, float) for v in (start, end, step))
    target = DTYPES[dtype or (torch.float32 if real else torch.int64)]
    if real:
        count = math.ceil((end - start) / step)
        if target.kind in "iub":  # torch counts in whole steps from a whole start
            start, step = int(start), int(step)
            return jnp.asarray((start + np.arange(count) * step).astype(target))
        return jnp.asarray(np.float64(start) + np.arange(count) * step, target)
    count = end - start if _is(step, 1) else -((end - start) // -step)
    if isinstance(count, int):
        count = max(count, 0)
    # Unsigned types hold no negative step: 64 bits do.
    wide = np.dtype(np.int64) if target.kind in "ub" else target
    places = lax.iota(wide, count)
    places = places if _is(step, 1) else places * cast(step, wide)
    places = places if _is(start, 0) else places + cast(start, wide)
    return places.astype(target)


def _is(x: Dim, value: int) -> bool:
    return isinstance(x, int) and x == value


@lowers(aten.arange.start)
def arange_start(start: Dim, end: Dim, **kwargs: Any) -> Array:
    return arange_step(start, end, **kwargs)


@lowers(aten.arange.default)
def arange(end: Dim, **kwargs: Any) -> Array:
    return arange_step(0, end, **kwargs)


def _full(size: Sequence[Dim], value: Operand, dtype: np.dtype[Any]) -> Array:
    return jnp.broadcast_to(cast(value, dtype), tuple(size))


@lowers(aten.full.default)
def full(
    size: Sequence[Dim],
    fill_value: Operand,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Array:
    return _full(size, fill_value, DTYPES[dtype or torch_dtype(fill_value)])


def _filled(value: int) -> Callable[..., Array]:
    def rule(
        size: Sequence[Dim],
        *_: object,
        dtype: torch.dtype | None = None,
        **__: object,
    ) -> Array:
        return _full(size, value, DTYPES[dtype or torch.float32])

    return rule


lowers(
    aten.zeros.default,
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_permuted.default,
)(_filled(0))
lowers(aten.ones.default)(_filled(1))


@lowers(aten.full_like.default)
def full_like(
    x: Array, fill_value: Operand, *, dtype: torch.dtype | None = None, **_: object
) -> Array:
    return _full(x.shape, fill_value, DTYPES[dtype] if dtype else x.dtype)


def _filled_like(value: int) -> Callable[..., Array]:
    def rule(x: Array, *, dtype: torch.dtype | None = None, **_: object) -> Array:
        return full_like(x, value, dtype=dtype)

    return rule


lowers(aten.zeros_like.default, aten.empty_like.default)(_filled_like(0))
lowers(aten.ones_like.default)(_filled_like(1))


@lowers(aten.new_full.default)
def new_full(
    x: Array,
    size: Sequence[Dim],
    fill_value: Operand,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Array:
    return _full(size, fill_value, DTYPES[dtype] if dtype else x.dtype)


def _new(value: int) -> Callable[..., Array]:
    def rule(
        x: Array,
        size: Sequence[Dim],
        *_: object,
        dtype: torch.dtype | None = None,
        **__: object,
    ) -> Array:
        return new_full(x, size, value, dtype=dtype)

    return rule


lowers(aten.new_zeros.default, aten.new_empty.default, aten.new_empty_strided.default)(
    _new(0)
)
lowers(aten.new_ones.default)(_new(1))


@lowers(aten.zero.default)
def zero(x: Array) -> Array:
    return jnp.zeros_like(x)


@lowers(aten.scalar_tensor.default)
def scalar_tensor(
    s: Operand, *, dtype: torch.dtype | None = None, **_: object
) -> Array:
    return cast(s, dtype or torch.float32)


@lowers(aten._local_scalar_dense.default, aten.item.default)
def item(x: Array) -> Array | Dim:
    sizes = context.current().sizes
    return sizes[0] if sizes else x.reshape(())


@lowers(aten.eye.default)
def eye(n: Dim, *, dtype: torch.dtype | None = None, **_: object) -> Array:
    return eye_m(n, n, dtype=dtype)


@lowers(aten.eye.m)
def eye_m(n: Dim, m: Dim, *, dtype: torch.dtype | None = None, **_: object) -> Array:
    equal = lax.iota(jnp.int32, n)[:, None] == lax.iota(jnp.int32, m)
    return equal.astype(DTYPES[dtype or torch.float32])


def _from_torch(op: Any) -> Callable[..., Array]:
    """Return a rule that computes a constant by torch itself: the same bits."""

    def rule(*args: Any, dtype: torch.dtype | None = None, **_: object) -> Array:
        flags = {} if dtype is None else {"dtype": dtype}
        value = op(*args, **flags)
        return jnp.asarray(value.double().numpy(), DTYPES[value.dtype])

    return rule


_CONSTANTS = (
    *(aten.hann_window.default, aten.hann_window.periodic),
    *(aten.hamming_window.default, aten.hamming_window.periodic),
    aten.hamming_window.periodic_alpha,
    aten.hamming_window.periodic_alpha_beta,
    *(aten.blackman_window.default, aten.blackman_window.periodic),
    *(aten.bartlett_window.default, aten.bartlett_window.periodic),
    aten.kaiser_window.default,
    aten.kaiser_window.periodic,
    aten.kaiser_window.beta,
    aten.linspace.default,
    aten.logspace.default,
    aten.tril_indices.default,
    aten.triu_indices.default,
)
for _op in _CONSTANTS:
    lowers(_op)(_from_torch(_op))


@lowers(
    aten.linspace.Tensor_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Scalar_Tensor,
)
def linspace(
    start: Operand,
    end: Operand,
    steps: int,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Array:
    kind = DTYPES[dtype or torch.float32]
    if not jnp.issubdtype(kind, jnp.integer):
        return jnp.linspace(start, end, steps, dtype=kind)
    # As torch: from both ends, in double, cut towards zero; JAX rounds down.
    first, last = (
        jnp.asarray(v).astype(kind).astype(jnp.float64) for v in (start, end)
    )
    if steps == 1:
        return first[None].astype(kind)
    n = jnp.arange(steps)
    step = (last - first) / (steps - 1)
    low, high = first + step * n, last - step * (steps - 1 - n)
    return jnp.where(n < steps // 2, low, high).astype(kind)
