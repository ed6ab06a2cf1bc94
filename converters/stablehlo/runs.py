"""Equal values side by side: what unique() and unique_consecutive() are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import axis
from tpu_export.converters.stablehlo.running import running


@dataclass(frozen=True)
class Runs:
    """Items in an order in which equal ones are neighbours.

    Attributes:
        items: [n, ...], in that order.
        order: int64[n], the place of each in the input.
        number: int64[n], of the run that each belongs to.
    """

    items: Array
    order: Array
    number: Array

    @classmethod
    def _of(cls, items: Array, order: Array) -> Runs:
        rows = items.reshape(items.shape[0], -1)
        none = jnp.zeros((), rows.dtype)
        before = lax.pad(rows, none, [(1, -1, 0), (0, 0, 0)])
        new = jnp.any(rows != before, axis=1) & (
            lax.iota(jnp.int64, items.shape[0]) > 0
        )
        return cls(items, order, running(lax.cumsum, new.astype(jnp.int64), 0))

    @classmethod
    def sorted(cls, x: Array) -> Runs:
        """Return the runs of all elements in ascending order; each NaN is one of its own."""
        return cls.rows(x.reshape(-1), 0, True)

    @classmethod
    def rows(cls, x: Array, dim: int, ordered: bool) -> Runs:
        """Return the runs of the slices along an axis, in lexicographic order or as they are."""
        items = jnp.moveaxis(x, axis(dim, x.ndim), 0)
        places = lax.iota(jnp.int64, items.shape[0])
        if not ordered:
            return cls._of(items, places)
        columns = items.reshape(items.shape[0], -1).T
        # The order of the first column decides first.
        *found, order = lax.sort(
            [*columns, places], num_keys=columns.shape[0], is_stable=True
        )
        return cls._of(jnp.stack(found, 1).reshape(items.shape), order)

    @classmethod
    def consecutive(cls, x: Array, dim: int | None) -> Runs:
        """Return the runs of neighbours that are equal."""
        return cls.rows(x.reshape(-1) if dim is None else x, dim or 0, False)

    @property
    def count(self) -> Array:
        """How many runs there are."""
        return jnp.max(self.number, initial=-1) + 1

    def first(self, n: Any) -> Array:
        """Return the item of each of n runs: [n, ...]."""
        shape = (n, *self.items.shape[1:])
        return jnp.zeros(shape, self.items.dtype).at[self.number].set(self.items)

    def inverse(self) -> Array:
        """Return the run of each item of the input: int64[items]."""
        return jnp.zeros_like(self.number).at[self.order].set(self.number)

    def lengths(self, n: Any) -> Array:
        """Return how many items each of n runs has: int64[n]."""
        return jnp.zeros(n, jnp.int64).at[self.number].add(1)
