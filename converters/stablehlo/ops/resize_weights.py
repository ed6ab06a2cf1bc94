"""How far one axis is resized, and the weights that do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from tpu_export.converters.stablehlo.weighted import Weights


@dataclass(frozen=True)
class Scaling:
    """How one axis is resized; scale is the user's factor where torch remembers it."""

    size: int
    out: int
    align_corners: bool
    scale: float | None
    dtype: np.dtype[Any]

    @property
    def static(self) -> bool:
        """Whether both sizes are numbers, so that the map is a constant."""
        return isinstance(self.size, int) and isinstance(self.out, int)

    @property
    def keeps_size(self) -> Any:
        """Whether the sizes are equal, which dynamic ones say when the program runs."""
        if self.static:
            return self.size == self.out
        return jnp.asarray(self.size) == jnp.asarray(self.out)

    @property
    def step(self) -> Any:
        """Return how far one step of the output goes in the input."""
        number = self.dtype.type if self.static else jnp.asarray
        if self.align_corners:
            if isinstance(self.out, int) and self.out <= 1:
                return self.dtype.type(0)
            return number(self.size - 1) / number(self.out - 1)
        if self.scale is not None and self.scale > 0:
            return self.dtype.type(1.0 / self.scale)
        return number(self.size) / number(self.out)

    def places(self, half: float = 0.0) -> Any:
        """Return the output's coordinates, shifted by half a pixel where asked."""
        arange: Callable[..., Any] = np.arange if self.static else jnp.arange
        return arange(self.out).astype(self.dtype) + self.dtype.type(half)

    def source(self) -> Any:
        """Return the input's coordinate of each output."""
        if self.align_corners:
            return self.places() * self.step
        return self.places(0.5) * self.step - self.dtype.type(0.5)


def _linear_matrix(scaling: Scaling) -> Weights:
    xp: Any = np if scaling.static else jnp
    source = xp.maximum(scaling.source(), 0)
    low = xp.minimum(xp.floor(source).astype(np.int32), scaling.size - 1)
    high = xp.minimum(low + 1, scaling.size - 1)
    weight = xp.clip(source - low, 0, 1)
    return _taps(scaling, [(low, 1 - weight), (high, weight)])


def _taps(scaling: Scaling, taps: Sequence[tuple[Any, Any]]) -> Weights:
    """Return the weights of sums that read one element a tap: its place [out], its weight."""
    xp: Any = np if scaling.static else jnp
    cols = xp.arange(scaling.size)[None, :]
    return Weights.of([(cols == i[:, None], w[:, None]) for i, w in taps])


def _cubic(distance: Any, a: float, xp: Any) -> Any:
    d = xp.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return xp.where(d <= 1, near, xp.where(d < 2, far, 0))


def _cubic_matrix(scaling: Scaling) -> Weights:
    xp: Any = np if scaling.static else jnp
    source = scaling.source()
    base = xp.floor(source)
    offsets = [base + k for k in (-1, 0, 1, 2)]
    places = [xp.clip(o, 0, scaling.size - 1).astype(np.int32) for o in offsets]
    weights = [_cubic(source - o, -0.75, xp) for o in offsets]
    return _taps(scaling, list(zip(places, weights, strict=True)))


def _antialiased(cubic: bool) -> Callable[[Scaling], Weights]:
    reach = 2.0 if cubic else 1.0

    def matrix(scaling: Scaling) -> Weights:
        xp: Any = np if scaling.static else jnp
        step = scaling.step
        wide = xp.maximum(step, 1)
        centre = scaling.places(0.5) * step
        support = reach * wide
        first = xp.maximum(xp.trunc(centre - support + 0.5), 0)[:, None]
        last = xp.minimum(xp.trunc(centre + support + 0.5), scaling.size)[:, None]
        cols = xp.arange(scaling.size)[None, :]
        distance = (cols - centre[:, None] + 0.5) / wide
        tent = xp.maximum(1 - xp.abs(distance), 0)
        weight = _cubic(distance, -0.5, xp) if cubic else tent
        inside = (cols >= first) & (cols < last)
        total = xp.sum(xp.where(inside, weight, 0), axis=1, keepdims=True)
        return Weights.of([(inside, weight / xp.where(total == 0, 1, total))])

    return matrix


_MATRICES: dict[str, Callable[[Scaling], Weights]] = {
    "linear": _linear_matrix,
    "cubic": _cubic_matrix,
    "linear_aa": _antialiased(cubic=False),
    "cubic_aa": _antialiased(cubic=True),
}


def axis_weights(scaling: Scaling, kind: str, copies: bool) -> Weights | None:
    """Return the weights [out, size], or None where the axis stays as it is.

    Args:
        scaling: how the axis is resized.
        kind: of interpolation.
        copies: an axis that keeps its size is copied, whatever the user's factor.
    """
    known = copies or scaling.scale in (None, 1.0)
    if scaling.static and scaling.keeps_size and known:
        return None
    weights = _MATRICES[kind](scaling)
    if scaling.static or not copies:
        return weights
    same = jnp.arange(scaling.out)[:, None] == jnp.arange(scaling.size)[None, :]
    kept = Weights.of([(same, jnp.ones((), scaling.dtype))])
    return Weights(*map(partial(jnp.where, scaling.keeps_size), kept, weights))
