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
_BY_NAME: dict[tuple[str, Target | None], Rule] = {}


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


def lowers_named(name: str, *, target: Target | None = None) -> Callable[[F], F]:
    """Register a rule for an op that another package defines, imported or not.

    Args:
        name: "namespace::op" or "namespace::op.overload", as OpOverload.name() gives it.
        target: as of lowers().
    """

    def register(rule: F) -> F:
        if (name, target) in _BY_NAME:
            message = f"duplicate lowering rule for {name}"
            raise ValueError(message)
        _BY_NAME[name, target] = rule
        return rule

    return register


def find_rule(op: Op, target: Target) -> Rule | None:
    """Return the rule for `op` on `target`, or None; a user's own wins over one by name."""
    found = _RULES.get((op, target)) or _RULES.get((op, None))
    if found is not None or not isinstance(op, OpOverload):
        return found
    return _BY_NAME.get((op.name(), target)) or _BY_NAME.get((op.name(), None))


def registered_ops() -> tuple[Op, ...]:
    """Return every overload that has a rule."""
    return tuple(dict.fromkeys(op for op, _ in _RULES))
