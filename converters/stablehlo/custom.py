"""Rules of the user: `tpu_export.lowers`, and what it checks (docs/custom-ops.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias, get_args

from torch._library.custom_ops import CustomOpDef
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from tpu_export.converters.stablehlo.registry import (
    OWN,
    F,
    Op,
    Own,
    Place,
    Platform,
    Target,
)
from tpu_export.runtime.errors import TpuExportError, with_article

Named: TypeAlias = Op | CustomOpDef
_FORM = "write @tpu_export.lowers(torch.ops.my.op.default) above the rule"


class RegistrationError(TpuExportError):
    """A rule cannot be registered: what it is for is no overload, or has one already."""

    code = "TPX-0207"


def lowers(
    *ops: Named, target: Target | None = None, platform: Platform | None = None
) -> Callable[[F], F]:
    """Register the decorated function as the rule of each overload.

    A rule takes the op's parameters, tensors as JAX arrays, and returns an array, or a tuple
    for several results. It wins over a rule of tpu-export for the same op.

    Args:
        ops: overloads such as ``torch.ops.my.op.default``, or what
            ``torch.library.custom_op`` returned.
        target: "xla" (TPU and CPU) or "litert"; None is both.
        platform: "tpu" or "cpu": only in that platform's program, such as a Pallas kernel. Every
            other program has the op's general rule, which must exist too.

    Raises:
        RegistrationError: for a packet (``torch.ops.my.op``), an unknown target or platform, or
            when the user has registered another rule for the same op and place.
    """
    _check_where(target, platform)
    places = [Place(op, target, platform) for op in map(_overload, ops)]
    if not places:
        raise RegistrationError("lowers() names no op", hint=_FORM)
    caller = sys._getframe(1)  # who registers: its file and line go into messages
    place = (caller.f_globals, caller.f_code.co_filename, caller.f_lineno)

    def register(rule: F) -> F:
        _register(places, Own(rule, *place))
        return rule

    return register


def _register(places: Sequence[Place], new: Own) -> None:
    if not callable(new.rule):
        raise RegistrationError(
            f"the rule for {places[0].op} is {with_article(type(new.rule).__name__)}",
            hint=_FORM,
        )
    for place in places:
        old = OWN.get(place)
        if old is not None and not _overwrites(new, old):
            raise RegistrationError(
                f"{place.op} has a rule already{_where(place)}: {old}",
                hint=f"keep that one, or this: {new}",
            )
        OWN[place] = new


def forget(module: str) -> None:
    """Drop the rules that a module registered: it is about to run again."""
    for place in [p for p, own in OWN.items() if own.module["__name__"] == module]:
        del OWN[place]


def _check_where(target: object, platform: object) -> None:
    if target not in (None, *get_args(Target)):
        raise RegistrationError(
            f"lowers(target={target!r}) is no target",
            hint='targets are "xla" (Cloud TPU and CPU) and "litert"; None is both',
        )
    if platform not in (None, *get_args(Platform)):
        raise RegistrationError(
            f"lowers(platform={platform!r}) is no platform",
            hint='platforms are "tpu" and "cpu"; None is both',
        )
    if platform is not None and target == "litert":
        raise RegistrationError(
            f"a .tflite has one program, and none for platform {platform!r}",
            hint='give target="litert" or a platform, not both',
        )


def _overload(op: Named) -> Op:
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, OpOverload | HigherOrderOperator):
        return op
    if isinstance(op, OpOverloadPacket):
        choice = " or ".join(f"torch.ops.{op}.{name}" for name in op.overloads())
        raise RegistrationError(
            f"lowers() takes an overload, and {op} is a packet of them",
            hint=f"write {choice}",
        )
    raise RegistrationError(f"lowers() takes an overload, not {op!r}", hint=_FORM)


def _where(place: Place) -> str:
    parts = (place.target, place.platform)
    return "".join(f" on {part}" for part in parts if part)


def _overwrites(new: Own, old: Own) -> bool:
    """Whether one definition ran twice: a module that is run again, a notebook's cell.

    Two definitions in one run of one file differ in their lines.
    """
    if new.module is not old.module:
        return bool(new.module["__name__"] == old.module["__name__"])
    return new.line == old.line or new.file != old.file
