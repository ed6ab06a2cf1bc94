"""The grid of a quantized value: which number an integer stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpu_export.converters.litert.exchange import Array

_LIMITS = {"i8": (-128, 127), "ui8": (0, 255), "i16": (-(2**15), 2**15 - 1)}
_DTYPES = {"i8": np.int8, "ui8": np.uint8, "i16": np.int16, "i32": np.int32}
_SHIFT = 128  # LiteRT's kernels take int8: uint8 is that, with a zero point less by 128


@dataclass(frozen=True)
class Grid:
    """An integer n stands for scale * (n - zero).

    Attributes:
        scales: one, or one for each place along the axis; zeros: likewise.
        axis: None for one scale.
        limits: the least and the largest integer.
        storage: MLIR's type of the integers.
    """

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int | None
    limits: tuple[int, int]
    storage: str

    @classmethod
    def of(
        cls,
        scales: Array,
        zeros: Array,
        axis: int,
        limits: tuple[int, int],
        storage: str,
    ) -> Grid:
        """Read a grid; an axis of -1 stands for none."""
        return cls(
            tuple(map(float, scales.reshape(-1))),
            tuple(map(int, zeros.reshape(-1))),
            None if axis < 0 else axis,
            limits,
            storage,
        )

    @property
    def no_activation(self) -> str | None:
        """Why LiteRT has no activations on this grid."""
        if self.axis is not None:
            return "an activation with a scale for each channel"
        if self.limits != _LIMITS.get(self.storage):
            low, high = self.limits
            return f"an activation of integers from {low} to {high}"
        return None

    @property
    def no_weight(self) -> str | None:
        """Why LiteRT has no weights on this grid; of a bias, which it rounds itself, none."""
        if self.storage not in ("i8", "ui8", "i32"):
            return f"a weight of type {self.storage}"
        if any(z != self._shift for z in self.zeros):
            return "a weight with a zero point"
        return None

    @property
    def is_stored(self) -> bool:
        """Whether a weight on this grid is stored as its integers."""
        return self.storage in ("i8", "ui8") and not self.no_weight

    @property
    def _shift(self) -> int:
        return _SHIFT if self.storage == "ui8" else 0

    @property
    def text(self) -> str:
        """MLIR's quantized type."""
        low, high = (limit - self._shift for limit in self.limits)
        storage = "i16" if self.storage == "i16" else "i8"
        limits = "" if (low, high) == _LIMITS[storage] else f"<{low}:{high}>"
        zeros = (z - self._shift for z in self.zeros)
        steps = [f"{s!r}:{z}" for s, z in zip(self.scales, zeros, strict=True)]
        if self.axis is None:
            return f"!quant.uniform<{storage}{limits}:f32, {steps[0]}>"
        return (
            f"!quant.uniform<{storage}{limits}:f32:{self.axis}, {{{','.join(steps)}}}>"
        )

    def stored(self, integers: Array) -> Array:
        """Return the integers as LiteRT stores them."""
        kind = np.int16 if self.storage == "i16" else np.int8
        shifted = integers.astype(np.int32) - self._shift
        return np.array(shifted, kind, order="C")

    def floats(self, integers: Array) -> Array:
        """Return float32 numbers of integers."""
        scales, zeros = self._along(integers.ndim)
        return np.array((np.float32(integers) - zeros) * scales, order="C")

    def integers(self, floats: Array) -> Array:
        """Return integers of numbers, as torch rounds: by the reciprocal, half to even."""
        scales, zeros = self._along(floats.ndim)
        levels = np.round(floats * (np.float32(1) / scales)) + zeros
        # In double: float32 has no number next to the largest int32.
        clipped: Array = np.clip(levels.astype(np.float64), *self.limits)
        return clipped.astype(_DTYPES[self.storage])

    def _along(self, rank: int) -> tuple[Array, Array]:
        shape = [1] * rank
        if self.axis is not None:
            shape[self.axis] = -1
        scales, zeros = (np.array(v, np.float32) for v in (self.scales, self.zeros))
        return scales.reshape(shape), zeros.reshape(shape)

    def transposed(self, order: Sequence[int]) -> Grid:
        """Return the grid of a transposed array."""
        if self.axis is None:
            return self
        return replace(self, axis=list(order).index(self.axis))

    def reshaped(self, old: Sequence[int], new: Sequence[int]) -> Grid | None:
        """Return the grid of a reshaped array, None where its axis is no axis then."""
        if self.axis is None:
            return self
        before, size = int(np.prod(old[: self.axis])), old[self.axis]
        for axis, length in enumerate(new):
            if length == size and int(np.prod(new[:axis])) == before:
                return replace(self, axis=axis)
        return None


# Integers as they are.
WHOLE = Grid((1.0,), (0,), None, _LIMITS["i8"], "i8")
