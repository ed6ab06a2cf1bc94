"""The inputs that parity runs: the example, and a second seeded set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tpu_export.exporter.capture import Captured
from tpu_export.exporter.second_inputs import Example, resized, second_inputs
from tpu_export.parity.eager import Sample
from tpu_export.runtime.signature import Signature, sizes_text

Second = Callable[[Captured, int], Any]


def empties(captured: Captured, signature: Signature) -> list[Mapping[str, int]]:
    """Return the example's sizes with each dimension 0 in turn, where it may be."""
    example = captured.example_dims()
    return [
        {**example, dim.name: 0}
        for dim in signature.dims
        if dim.minimum == 0 and example[dim.name] != 0
    ]


@dataclass(frozen=True)
class Samples:
    """Makes the samples of a signature.

    Attributes:
        seed: of the second set.
        second: gives the second (args, kwargs); the default draws values like
            the example's: same shapes and dtypes, floats of its mean and deviation,
            integers within its range.
        buckets: sizes of dynamic dimensions to run as well, by signature.
    """

    seed: int = 1
    second: Second | None = None
    buckets: Mapping[str, Sequence[Mapping[str, int]]] = field(default_factory=dict)

    def of(self, captured: Captured) -> list[Sample]:
        """Return the example, the second set, and one a bucket, for one signature."""
        return [
            Sample("example", *captured.example),
            Sample(f"seed {self.seed}", *self._drawn(captured)),
            *(
                Sample(sizes_text(sizes), *self._sized(captured, sizes))
                for sizes in self.buckets.get(captured.name, ())
            ),
        ]

    def _drawn(self, captured: Captured) -> Example:
        args, kwargs = (self.second or second_inputs)(captured, self.seed)
        return args, kwargs

    def _sized(self, captured: Captured, sizes: Mapping[str, int]) -> Example:
        example = resized(captured, captured.example, sizes)
        drawn = self._drawn(replace(captured, example=example))
        return resized(captured, drawn, sizes)
