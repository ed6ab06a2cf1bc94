"""Bits of integers and booleans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import Operand, axes, promote
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


def _right_shift(x: Array, y: Array) -> Array:
    x, y = jnp.broadcast_arrays(x, y)
    # XLA gives the sign for counts beyond the width; torch does so for negative counts too.
    if not jnp.issubdtype(x.dtype, jnp.signedinteger):
        return lax.shift_right_logical(x, y)
    return lax.shift_right_arithmetic(x, y)


def _left_shift(x: Array, y: Array) -> Array:
    x, y = jnp.broadcast_arrays(x, y)
    return lax.shift_left(x, y)


def _promoted(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def rule(x: Operand, y: Operand) -> Array:
        return function(*promote(x, y))

    return rule


_WORDS: dict[str, Callable[[Array, Array], Array]] = {
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "bitwise_left_shift": _left_shift,
    "bitwise_right_shift": _right_shift,
}
_FORMS: dict[str, str] = {
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift",
}


def _overloads(name: str) -> list[Any]:
    packet = getattr(aten, name)
    wanted = {"Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor"}
    return [getattr(packet, o) for o in packet.overloads() if o in wanted]


for _name, _function in _WORDS.items():
    lowers(*_overloads(_name))(_promoted(_function))
for _name, _word in _FORMS.items():
    lowers(*_overloads(_name))(_promoted(_WORDS[_word]))
lowers(aten.bitwise_not.default)(jnp.bitwise_not)


@lowers(aten.hash_tensor.default)
def hash_tensor(
    x: Array, dim: Sequence[int] = (), *, keepdim: bool = False, mode: int = 0
) -> Array:
    """The exclusive or of all elements, as the bits of float64 or int64."""
    if jnp.issubdtype(x.dtype, jnp.floating):
        bits = lax.bitcast_convert_type(x.astype(jnp.float64), jnp.int64)
    else:
        bits = x.astype(jnp.int64)
    over = axes(dim, x.ndim)
    y = lax.reduce(bits, np.int64(0), lax.bitwise_xor, over)
    y = jnp.expand_dims(y, over) if keepdim else y
    return lax.bitcast_convert_type(y, jnp.uint64)
