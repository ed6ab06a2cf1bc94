"""What rules share about operands: torch's dtypes and promotion, dims, composites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.reals import Real

Number: TypeAlias = bool | int | float | complex
Operand: TypeAlias = Array | Number

# What a composite named so computes is never computed ahead: its reader wants it whole.
KEPT = "tpu_export."

# torch dtype <-> numpy/ml_dtypes dtype: the one table.
DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.uint16: np.dtype(np.uint16),
    torch.uint32: np.dtype(np.uint32),
    torch.uint64: np.dtype(np.uint64),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
    torch.float8_e4m3fn: np.dtype(ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: np.dtype(ml_dtypes.float8_e5m2),
}
TORCH_DTYPES: dict[np.dtype[Any], torch.dtype] = {v: k for k, v in DTYPES.items()}


def torch_dtype(x: Operand) -> torch.dtype:
    """Return the torch dtype of an array, or of a Python number as torch infers it."""
    if isinstance(x, bool):
        return torch.bool
    if isinstance(x, float | Real):
        return torch.float32
    if isinstance(x, complex):
        return torch.complex64
    return TORCH_DTYPES[np.dtype(x.dtype)] if hasattr(x, "dtype") else torch.int64


def result_type(*operands: Operand) -> np.dtype[Any]:
    """Return torch's promoted dtype: tensors over 0-d tensors over Python numbers."""
    return _promoted(tuple((_kind(x), torch_dtype(x)) for x in operands))


TENSOR, SCALAR_TENSOR, NUMBER = range(3)
_SAMPLES: dict[torch.dtype, Number] = {
    torch.bool: True,
    torch.int64: 1,
    torch.float32: 1.0,
    torch.complex64: 1j,
}


def _kind(x: Operand) -> int:
    ndim = getattr(x, "ndim", None)
    return NUMBER if ndim is None else TENSOR if ndim else SCALAR_TENSOR


@cache
def _promoted(operands: tuple[tuple[int, torch.dtype], ...]) -> np.dtype[Any]:
    # torch.result_type is binary, and not associative across priorities: sort by priority first.
    first, *rest = sorted(operands, key=lambda x: x[0])
    for other in rest:
        first = (first[0], torch.result_type(_probe(*first), _probe(*other)))
    return DTYPES[first[1]]


def _probe(kind: int, dtype: torch.dtype) -> Any:
    if kind == NUMBER:
        return _SAMPLES[dtype]
    return torch.empty((1,) if kind == TENSOR else (), dtype=dtype, device="meta")


def promote(*operands: Operand) -> tuple[Array, ...]:
    """Cast all operands to torch's promoted dtype."""
    dtype = result_type(*operands)
    return tuple(cast(x, dtype) for x in operands)


def cast(x: Operand, dtype: np.dtype[Any] | torch.dtype) -> Array:
    """Return `x` as an array of the dtype (a torch or a numpy one); integers wrap."""
    dtype = DTYPES[dtype] if isinstance(dtype, torch.dtype) else dtype
    if type(x) is int and dtype.kind in "iu":
        return jnp.asarray(np.asarray(x).astype(dtype))
    return jnp.asarray(x, dtype)


def floating(*operands: Operand) -> tuple[Array, ...]:
    """Promote, and turn ints and bools into float32, as torch's float ops do."""
    dtype = result_type(*operands)
    if not jnp.issubdtype(dtype, jnp.inexact):
        dtype = np.dtype(np.float32)
    return tuple(cast(x, dtype) for x in operands)


def widen(x: Array) -> Array:
    """Return half types as float32, in which torch's kernels compute; others as they are."""
    half = x.dtype in (DTYPES[torch.float16], DTYPES[torch.bfloat16])
    return x.astype(jnp.float32) if half else x


# Bits of the exponent and of the fraction.
HALF_BITS = {DTYPES[torch.float16]: (5, 10), DTYPES[torch.bfloat16]: (8, 7)}


def rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    """Return float32 numbers as a half type would hold them, still as float32.

    XLA may drop a cast there and back.
    """
    if dtype not in HALF_BITS:
        return x
    return jax.lax.reduce_precision(x, *HALF_BITS[dtype])


def in_opmath(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a float function that computes half types in float32 and rounds once."""

    def rule(*operands: Operand, **kwargs: Any) -> Array:
        xs = floating(*operands)
        return function(*map(widen, xs), **kwargs).astype(xs[0].dtype)

    return rule


def row_mean(x: Array) -> Array:
    """Return the mean over the last axis, kept as an axis of one.

    For TPU and CPU it is a product with 1/n at full float32 precision: TPU has it done by the
    matrix unit, where a reduction would be a pass of its own (BERT-base: a fifth of
    the estimated cycles).
    """
    size = x.shape[-1] if x.ndim else 1
    plain = context.current().target != "xla" or not isinstance(size, int)
    if plain or x.dtype != jnp.float32 or size == 0:
        return jnp.mean(x, axis=-1, keepdims=True)
    share = jnp.full((size, 1), 1 / size, x.dtype)
    dims = (((x.ndim - 1,), (0,)), ((), ()))
    return jax.lax.dot_general(x, share, dims, precision=jax.lax.Precision.HIGHEST)


def scaled(x: Array, factor: Number) -> Array:
    """Return `x * factor` in the dtype of `x`; a factor of 1 costs nothing."""
    return x if factor == 1 else x * jnp.asarray(factor, x.dtype)


def replaced(x: Array, where: Array, value: Number) -> Array:
    """Return `x` with the number at some places, as a constant of its dtype.

    jnp.where would make a float64 of the number, and cast it.
    """
    return jnp.where(where, jnp.asarray(value, x.dtype), x)


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return what no element of the dtype is less than: a maximum of nothing."""
    return _limit(dtype, low=True)


def highest(dtype: np.dtype[Any]) -> Any:
    """Return what no element of the dtype is greater than: a minimum of nothing."""
    return _limit(dtype, low=False)


def _limit(dtype: np.dtype[Any], *, low: bool) -> Any:
    if dtype.kind == "b":
        return np.bool_(not low)
    if jnp.issubdtype(dtype, jnp.inexact):
        return np.array(-np.inf if low else np.inf, dtype)[()]
    limits = np.iinfo(dtype)
    return np.array(limits.min if low else limits.max, dtype)[()]


def spread(values: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Return one value an axis: torch lets a single one stand for all."""
    listed = (values,) if not isinstance(values, Sequence) else tuple(values)
    return listed * rank if len(listed) == 1 else listed


def axis(dim: int, rank: int) -> int:
    """Return a dim as 0 <= dim < max(rank, 1)."""
    return dim + max(rank, 1) if dim < 0 else dim


def axes(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return dims as sorted non-negative axes; None and [] mean all, as in torch's reductions."""
    if dims is None or (not isinstance(dims, int) and len(dims) == 0):
        return tuple(range(rank))
    listed = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted(axis(d, rank) for d in listed)) if rank else ()


def composite(
    name: str, function: Callable[..., Any], *args: Array, **attributes: object
) -> Any:
    """Call `function(*args)` as a StableHLO composite that LiteRT's converter fuses.

    XLA inlines it. A program with dynamic dimensions calls the function directly. The scope is
    entered again inside, so that inlined ops keep their place.
    """
    if context.current().symbolic:
        return function(*args)  # JAX gives sizes to all functions, and to no composite
    scope = context.current().scope

    def decomposition(*xs: Array, **_: object) -> Any:
        with jax.named_scope(scope or name):
            return function(*xs)

    return jax.lax.composite(decomposition, name=name)(*args, **attributes)
