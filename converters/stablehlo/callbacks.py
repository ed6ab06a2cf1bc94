"""Rules of the user that call back to Python, which no process that runs an artifact has."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from tpu_export.converters.stablehlo.refusals import RuleFailedError
from tpu_export.converters.stablehlo.registry import OWN, Own

_CALLBACKS = {
    "pure_callback": "jax.pure_callback",
    "io_callback": "jax.experimental.io_callback",
    "debug_callback": "jax.debug.callback",
    "debug_print": "jax.debug.print",
}


def refuse_callbacks(closed: ClosedJaxpr) -> None:
    """Refuse a program that calls Python functions, in the words of the rule that does.

    Raises:
        RuleFailedError: it has one; names the first.
    """
    for eqn, frames in _equations(closed.jaxpr, ()):
        called = _CALLBACKS.get(eqn.primitive.name)
        if called is not None:
            raise RuleFailedError(
                f"{_caller(frames)}, which calls back to Python ({called})",
                hint="an artifact runs without Python: compute with jax.numpy alone; "
                "`tpu-export debug` shows what each op gives",
            )


def _equations(
    jaxpr: Jaxpr, outer: Sequence[Any]
) -> Iterator[tuple[JaxprEqn, Sequence[Any]]]:
    """Yield every equation and the frames that it came up in, the innermost first.

    Not those of Pallas kernels, which print on their device.
    """
    for eqn in jaxpr.eqns:
        traceback = eqn.source_info.traceback
        frames = (*(traceback.frames if traceback else ()), *outer)
        yield eqn, frames
        if eqn.primitive.name != "pallas_call":
            for value in eqn.params.values():
                for inner in value if isinstance(value, tuple) else (value,):
                    if isinstance(inner, ClosedJaxpr):
                        inner = inner.jaxpr
                    if isinstance(inner, Jaxpr):
                        yield from _equations(inner, frames)


def _caller(frames: Sequence[Any]) -> str:
    """Return "your rule for my.op.default (f at m.py:3) has line 5"."""
    for frame in frames:
        for place, own in OWN.items():
            if _is_in(frame, own):
                lines = [f.line_num for f in frames if f.file_name == own.file]
                return f"your rule for {place.op} ({own}) has line {lines[0]}"
    return "a rule has code"


def _is_in(frame: Any, own: Own) -> bool:
    """Whether a frame of a traceback is a call of the rule itself."""
    code = getattr(inspect.unwrap(own.rule), "__code__", None)
    if code is None or frame.file_name != code.co_filename:
        return False
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return frame.function_name == code.co_qualname and frame.line_num in lines
