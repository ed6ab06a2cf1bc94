"""What a rule may ask of the lowering around it: the target, its place, random keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import jax

from tpu_export.converters.stablehlo.registry import Target


@dataclass
class LoweringContext:
    """The lowering in progress.

    Attributes:
        target: what is being lowered for.
        key: the random key that the next random op splits; None until one asks.
        scope: "module.path/aten op/file:line" of the node being lowered.
        trial: only to find out whether something draws; what is computed is thrown away.
        every_row_sees: the attention being lowered hides no row of scores as a whole.
        sizes: of the result of the node being lowered, those that the data decides.
        symbolic: the signature has dynamic dimensions.
    """

    target: Target = "xla"
    key: jax.Array | None = None
    drew: bool = False
    scope: str = ""
    trial: bool = False
    every_row_sees: bool = False
    sizes: Sequence[Any] = ()
    symbolic: bool = False

    def next_key(self) -> jax.Array:
        """Return a fresh key and advance the state (threefry, uint32[2])."""
        self.drew = True
        if self.trial:
            return jax.numpy.zeros(2, "uint32")
        self.key, key = jax.random.split(self.state())
        return jax.numpy.asarray(key)

    def state(self) -> jax.Array:
        """Return the key that the next draw splits."""
        if self.key is None:
            self.key = jax.numpy.zeros(2, "uint32")
        return self.key


_CONTEXT: ContextVar[LoweringContext | None] = ContextVar("lowering", default=None)


def current() -> LoweringContext:
    """Return the lowering in progress; outside of one, a fresh default."""
    return _CONTEXT.get() or LoweringContext()


@contextmanager
def lowering(context: LoweringContext) -> Iterator[LoweringContext]:
    """Make `context` the current one inside the block."""
    token = _CONTEXT.set(context)
    try:
        yield context
    finally:
        _CONTEXT.reset(token)
