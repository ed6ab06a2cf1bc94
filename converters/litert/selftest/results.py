"""How constants come in and results come out, and sizes that vary."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tpu_export.converters.litert.selftest.entry import (
    RIGHT,
    UNRUNNABLE,
    WRONG,
    Entry,
    Outcome,
    entry,
    normal,
)

_X = normal(3)
_MASK = np.array([1, 0, 0, 0, 0, 0, 0, 0, 1], bool)
_WEIGHT = normal(4, 5)
_COPIES = "the adapter copies such results"


def _argument(x: Any) -> Any:
    return x, x + 1


def _twice(x: Any) -> Any:
    y = x * 2
    return y, y


def _constants(x: Any) -> Any:
    anchors = jnp.asarray(np.arange(3, dtype=np.float32))
    return anchors, anchors, x + 1


def _branch(x: Any) -> Any:
    return lax.cond(
        jnp.mean(x) > 0.5, lambda x: jnp.sum(x, 1), lambda x: jnp.max(x, 1), x
    )


def _product(x: Any) -> Any:
    return 2 * lax.cond(
        jnp.mean(x) > 0.5, lambda x: x @ _WEIGHT, lambda x: x @ _WEIGHT - 1, x
    )


def _switch(i: Any, x: Any) -> Any:
    return lax.switch(i, [lambda x: x + 1, lambda x: x * 2, lambda x: x - 3], x)


def _shared(name: str, function: Any, *expected: Any, x: Any = _X) -> list[Entry]:
    """Make the entry without the adapter's copies, and with them."""
    return [
        entry(name, function, (x,), (RIGHT, *expected), _COPIES),
        entry(
            f"{name}, copied",
            function,
            (x,),
            RIGHT,
            "relied on by the adapter",
            copies=True,
        ),
    ]


def _batches(name: str, function: Any, compiled: Outcome) -> Entry:
    calls = tuple((normal(n, 4, seed=n),) for n in (2, 5, 1))
    guard = "sizes are bound before"
    return Entry(name, function, calls, RIGHT, compiled, guard, batch=True)


RESULTS: tuple[Entry, ...] = (
    *_shared("result is an argument", _argument, WRONG),
    *_shared("result returned twice", _twice, WRONG),
    *_shared("constant returned twice", _constants, WRONG),
    *_shared("result of a branch", _branch, WRONG, x=normal(3, 4)),
    entry(
        "product without a bias in a branch",
        _product,
        (normal(1, 4),),
        (RIGHT, UNRUNNABLE),
        "the trial in both engines",
    ),
    entry("switch", _switch, (np.int32(1), _X), RIGHT, "relied on"),
    entry(
        "constant mask",
        lambda x: jnp.where(_MASK, x, -x),
        (np.float32(2),),
        RIGHT,
        "the adapter hands weights a byte each",
    ),
    entry(
        "input without elements",
        lambda x, y: (jnp.sum(x), y * 2),
        (np.zeros((0, 3), np.float32), _X),
        (RIGHT, UNRUNNABLE),
        "the trial in both engines",
    ),
    _batches("batch of any size, sum", lambda x: x + 1, RIGHT),
    _batches("batch of any size, product", lambda x: x @ _WEIGHT, UNRUNNABLE),
    _batches("batch of any size, softmax", jax.nn.softmax, RIGHT),
)
