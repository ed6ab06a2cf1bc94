"""What rules share about operands: torch's dtypes and promotion, dims, composites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from jax import Array

from tpu_export.converters.stablehlo import context

Number: TypeAlias = bool | int | float | complex
Operand: TypeAlias = Array | Number

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
    if isinstance(x, float):
        return torch.float32
    if isinstance(x, complex):
        return torch.complex64
    return TORCH_DTYPES[np.dtype(x.dtype)] if hasattr(x, "dtype") else torch.int64


def result_type(*operands: Operand) -> np.dtype[Any]:
    """Return torch's promoted dtype: tensors over 0-d tensors over Python numbers."""
    probes = [
        torch.empty((1,) if x.ndim else (), dtype=torch_dtype(x), device="meta")
        if hasattr(x, "ndim")
        else _number(x)
        for x in operands
    ]
    dtype = _promote(probes)
    return DTYPES[dtype]


def _number(x: Number) -> Number:
    return x if isinstance(x, bool | int | float | complex) else 1  # a symbolic dim


def _promote(probes: Sequence[torch.Tensor | Number]) -> torch.dtype:
    # torch.result_type is binary, and not associative across priorities: sort by priority first.
    def priority(x: torch.Tensor | Number) -> int:
        return (
            0
            if isinstance(x, torch.Tensor) and x.ndim
            else 1
            if isinstance(x, torch.Tensor)
            else 2
        )

    first: Any
    first, *rest = sorted(probes, key=priority)
    if not rest:
        return first.dtype if isinstance(first, torch.Tensor) else torch_dtype(first)
    for other in rest:
        dtype = torch.result_type(first, other)
        shape = (1,) if isinstance(first, torch.Tensor) and first.ndim else ()
        first = torch.empty(shape, dtype=dtype, device="meta")
    return torch_dtype(first) if not isinstance(first, torch.Tensor) else first.dtype


def promote(*operands: Operand) -> tuple[Array, ...]:
    """Cast all operands to torch's promoted dtype."""
    dtype = result_type(*operands)
    return tuple(cast(x, dtype) for x in operands)


def cast(x: Operand, dtype: np.dtype[Any] | torch.dtype) -> Array:
    """Return `x` as an array of the dtype (a torch or a numpy one)."""
    return jnp.asarray(x, DTYPES[dtype] if isinstance(dtype, torch.dtype) else dtype)


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


def scaled(x: Array, factor: Number) -> Array:
    """Return `x * factor` in the dtype of `x`; a factor of 1 costs nothing."""
    return x if factor == 1 else x * jnp.asarray(factor, x.dtype)


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

    XLA inlines it. Symbolic shapes call the function directly. The scope is entered again
    inside, so that inlined ops keep their place.
    """
    if not all(isinstance(d, int) for x in args for d in x.shape):
        return function(*args)  # composites take no symbolic shapes
    scope = context.current().scope

    def decomposition(*xs: Array, **_: object) -> Any:
        with jax.named_scope(scope or name):
            return function(*xs)

    return jax.lax.composite(decomposition, name=name)(*args, **attributes)
