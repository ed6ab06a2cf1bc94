"""The table of lowering rules: ATen overload -> a function of JAX arrays.

A rule takes the parameters of the overload's schema (tensors as JAX arrays; ints may be JAX
dimension expressions) and returns an array, or a tuple for several results. Rules for
overloads that write to an argument return the new value instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

Target: TypeAlias = Literal["xla", "litert"]
Op: TypeAlias = OpOverload | HigherOrderOperator
Rule: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Rule)

_RULES: dict[tuple[Op, Target | None], Rule] = {}


def lowers(*ops: Op, target: Target | None = None) -> Callable[[F], F]:
    """Register the decorated function as the rule of each overload.

    Args:
        ops: OpOverload objects such as ``torch.ops.aten.silu.default``, or higher-order ops.
        target: restricts the rule to one target; it wins there over the general rule.

    Raises:
        TypeError: for a packet (``torch.ops.aten.silu``) or a string.
        ValueError: when an overload has a rule for this target already.
    """

    def register(rule: F) -> F:
        for op in ops:
            if isinstance(op, OpOverloadPacket) or not isinstance(
                op, OpOverload | HigherOrderOperator
            ):
                message = f"lowers() takes overloads such as aten.add.Tensor, not {op}"
                raise TypeError(message)
            if (op, target) in _RULES:
                message = f"duplicate lowering rule for {op}"
                raise ValueError(message)
            _RULES[op, target] = rule
        return rule

    return register


def find_rule(op: Op, target: Target) -> Rule | None:
    """Return the rule for `op` on `target`, or None."""
    return _RULES.get((op, target)) or _RULES.get((op, None))


def registered_ops() -> tuple[Op, ...]:
    """Return every overload that has a rule."""
    return tuple(dict.fromkeys(op for op, _ in _RULES))
