"""One difficult program: what was found of it, and what of ours guards against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tpu_export.converters.litert.exchange import Array

Outcome: TypeAlias = Literal["right", "wrong", "cannot run", "dies", "refused"]
RIGHT: Outcome = "right"
WRONG: Outcome = "wrong"  # silently
UNRUNNABLE: Outcome = "cannot run"  # an engine cannot load the file, or run the call
DIES: Outcome = "dies"  # the process does, or it hangs
REFUSED: Outcome = "refused"  # by the converter


@dataclass(frozen=True)
class Entry:
    """A program that is converted as it is.

    Attributes:
        function: of JAX arrays, to one array or a tuple.
        inputs: of each call; a further call has another batch.
        interpreter, compiled: the outcomes with litert-converter 0.5.0 and ai-edge-litert
            2.3.0, measured.
        guard: what of ours keeps models away from it; of one that is right, what relies on it.
        platform: whose lowering JAX is to take.
        batch: whether the leading axis of every input is symbolic.
        copies: whether the adapter copies results, as it does in an export.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[tuple[Array, ...], ...]
    interpreter: Outcome
    compiled: Outcome
    guard: str
    platform: Literal["cpu", "tpu"] = "cpu"
    batch: bool = False
    copies: bool = False


def entry(
    name: str,
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    expected: Outcome | tuple[Outcome, Outcome],
    guard: str,
    **options: Any,
) -> Entry:
    """Make an entry of one call."""
    both = expected if isinstance(expected, tuple) else (expected, expected)
    return Entry(name, function, (inputs,), *both, guard, **options)


def normal(*shape: int, seed: int = 0) -> Array:
    """Return seeded float32."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float32)


def whole(*values: float, dtype: Any = np.int32) -> Array:
    """Return a vector of integers."""
    return np.array(values, dtype)
