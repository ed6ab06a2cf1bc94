"""torch._foreach_*: one op on each tensor of a list, by the rule of that op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array
from torch._ops import OpOverload

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.registry import find_rule, lowers

aten = torch.ops.aten

UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp",
    "expm1", "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal",
    "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
# name -> (the op with a tensor beside each, the op with a number beside each)
BINARY: dict[str, tuple[OpOverload, OpOverload]] = {
    "add": (aten.add.Tensor, aten.add.Tensor),
    "sub": (aten.sub.Tensor, aten.sub.Tensor),
    "mul": (aten.mul.Tensor, aten.mul.Tensor),
    "div": (aten.div.Tensor, aten.div.Tensor),
    "maximum": (aten.maximum.default, aten.clamp_min.default),
    "minimum": (aten.minimum.default, aten.clamp_max.default),
    "clamp_min": (aten.clamp_min.Tensor, aten.clamp_min.default),
    "clamp_max": (aten.clamp_max.Tensor, aten.clamp_max.default),
    "pow": (aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar),
}


def _apply(op: OpOverload, *args: Any, **kwargs: Any) -> Array:
    rule = find_rule(op, current().target)
    assert rule is not None, op
    result: Array = rule(*args, **kwargs)
    return result


def _each(op: OpOverload) -> Callable[..., list[Array]]:
    """Return the rule that takes the n-th of every list; what is no list goes to all."""

    def rule(xs: Sequence[Array], *others: Any, **kwargs: Any) -> list[Array]:
        return [
            _apply(
                op,
                x,
                *(o[i] if isinstance(o, list | tuple) else o for o in others),
                **kwargs,
            )
            for i, x in enumerate(xs)
        ]

    return rule


def _register() -> None:
    for name in UNARY:
        lowers(_packet(name).default)(_each(getattr(aten, name).default))
    for name, (tensor, number) in BINARY.items():
        packet = _packet(name)
        lowers(packet.List)(_each(tensor))
        lowers(packet.Scalar, packet.ScalarList)(_each(number))
    for name in ("add", "mul", "div"):
        lowers(_packet(name).Tensor)(_each(BINARY[name][0]))
    lowers(_packet("pow").ScalarAndTensor)(_power_of_number)
    lowers(_packet("lerp").List)(_each(aten.lerp.Tensor))
    lowers(_packet("lerp").Scalar, _packet("lerp").ScalarList)(_each(aten.lerp.Scalar))
    lowers(_packet("norm").Scalar)(_norm)
    for name, combine in (("addcmul", "mul"), ("addcdiv", "div")):
        packet, op = _packet(name), getattr(aten, name).default
        lowers(packet.Scalar, packet.ScalarList)(_with_numbers(op))
        lowers(packet.Tensor)(_with_tensor(getattr(aten, combine).Tensor))


def _packet(name: str) -> Any:
    return getattr(aten, f"_foreach_{name}")


def _power_of_number(number: Any, exponents: Sequence[Array]) -> list[Array]:
    return [_apply(aten.pow.Scalar, number, x) for x in exponents]


def _norm(
    xs: Sequence[Array], ord: Any = 2, dtype: torch.dtype | None = None
) -> list[Array]:
    return [_apply(aten.linalg_vector_norm.default, x, ord, dtype=dtype) for x in xs]


def _with_numbers(op: OpOverload) -> Callable[..., list[Array]]:
    def rule(
        xs: Sequence[Array], a: Sequence[Array], b: Sequence[Array], value: Any = 1
    ) -> list[Array]:
        values = value if isinstance(value, list | tuple) else [value] * len(xs)
        return [
            _apply(op, x, y, z, value=v)
            for x, y, z, v in zip(xs, a, b, values, strict=True)
        ]

    return rule


def _with_tensor(combine: OpOverload) -> Callable[..., list[Array]]:
    def rule(
        xs: Sequence[Array], a: Sequence[Array], b: Sequence[Array], values: Array
    ) -> list[Array]:
        scaled = [
            _apply(aten.mul.Tensor, _apply(combine, y, z), values[i])
            for i, (y, z) in enumerate(zip(a, b, strict=True))
        ]
        return [_apply(aten.add.Tensor, x, y) for x, y in zip(xs, scaled, strict=True)]

    return rule


@lowers(aten._foreach_copy.default)
def foreach_copy(
    xs: Sequence[Array], sources: Sequence[Array], non_blocking: bool = False
) -> list[Array]:
    return [
        jnp.broadcast_to(y, x.shape).astype(x.dtype)
        for x, y in zip(xs, sources, strict=True)
    ]


@lowers(aten._foreach_zero.default)
def foreach_zero(xs: Sequence[Array]) -> list[Array]:
    return [jnp.zeros_like(x) for x in xs]


_register()
