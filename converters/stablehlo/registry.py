"""The tables of lowering rules: ATen overload -> a function of JAX arrays.

A rule takes the parameters of the overload's schema (tensors as JAX arrays; ints may be JAX
dimension expressions) and returns an array, or a tuple for several results. Rules for
overloads that write to an argument return the new value instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

Target: TypeAlias = Literal["xla", "litert"]
Platform: TypeAlias = Literal["tpu", "cpu"]
Op: TypeAlias = OpOverload | HigherOrderOperator
Rule: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Rule)

_RULES: dict[tuple[Op, Target | None], Rule] = {}
_BY_NAME: dict[tuple[str, Target | None], Rule] = {}


@dataclass(frozen=True)
class Place:
    """Where a rule of the user applies; None is everywhere.

    Places are equal by the op's definition: torch makes a new overload object of the same op when
    the library of an earlier definition is collected as garbage, at any time.
    """

    op: Op = field(compare=False)
    target: Target | None = None
    platform: Platform | None = None
    definition: object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        op: Any = self.op  # a higher-order op's name() has no types
        object.__setattr__(self, "definition", OPDEFS.get(op.name(), op))


@dataclass(frozen=True)
class Own:
    """A rule of the user: who registered it, and where.

    Attributes:
        module: the globals of the code that did, which a second run of it makes anew.
    """

    rule: Rule
    module: Mapping[str, Any] = field(repr=False)
    file: str
    line: int

    def __str__(self) -> str:
        name = getattr(self.rule, "__name__", type(self.rule).__name__)
        return f"{name} at {Path(self.file).name}:{self.line}"


# Of the user (custom.py): they win over ours.
OWN: dict[Place, Own] = {}


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
    """Return the rule for `op` on `target`, or None; a user's own wins over ours."""
    own = find_own(op, target)
    if own is not None:
        return own.rule
    found = _RULES.get((op, target)) or _RULES.get((op, None))
    if found is not None or not isinstance(op, OpOverload):
        return found
    return _BY_NAME.get((op.name(), target)) or _BY_NAME.get((op.name(), None))


def find_own(op: Op, target: Target) -> Own | None:
    """Return the user's rule for `op` on every platform of `target`."""
    return OWN.get(Place(op, target)) or OWN.get(Place(op))


def find_variants(op: Op, target: Target) -> dict[Platform, Own]:
    """Return the user's rules for `op` that hold on one platform only."""
    wanted = Place(op).definition
    return {
        place.platform: own
        for place, own in OWN.items()
        if place.definition is wanted and place.platform is not None and target == "xla"
    }


def registered_ops() -> tuple[Op, ...]:
    """Return every overload that has a rule on every platform of some target."""
    own = (place.op for place in OWN if place.platform is None)
    return tuple(dict.fromkeys([*(op for op, _ in _RULES), *own]))
