"""Rows, each several times: what repeat_interleave() by a tensor is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import axis


@dataclass(frozen=True)
class Repeats:
    """How often each row of a tensor comes.

    Attributes:
        items: the tensor.
        axis: of its rows.
        times: int[rows], or int[1] for all of them.
    """

    items: Array
    axis: int
    times: Array

    @classmethod
    def of(
        cls, x: Array, repeats: Array | None = None, dim: int | None = None
    ) -> Repeats:
        """Take the arguments of the op: `x` is the counts where it is alone."""
        if repeats is None:
            return cls(lax.iota(jnp.int64, x.shape[0]), 0, x)
        x = x.reshape(-1) if dim is None else x
        return cls(x, axis(dim or 0, x.ndim), repeats.reshape(-1))

    @property
    def rows(self) -> Any:
        """The number of rows: an int or a dimension."""
        return self.items.shape[self.axis]

    @property
    def each(self) -> Array:
        """How often each row comes: int[rows]."""
        return jnp.broadcast_to(self.times, (self.rows,))
