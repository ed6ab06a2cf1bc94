"""The inputs that parity runs: the example, and a second seeded set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tpu_export.exporter.capture import Captured
from tpu_export.exporter.second_inputs import second_inputs
from tpu_export.parity.eager import Sample

Second = Callable[[Captured, int], Any]


@dataclass(frozen=True)
class Samples:
    """Makes the samples of a signature.

    Attributes:
        seed: of the second set.
        second: gives the second (args, kwargs); the default draws values like
            the example's: same shapes and dtypes, floats of its mean and deviation,
            integers within its range.
    """

    seed: int = 1
    second: Second | None = None

    def of(self, captured: Captured) -> list[Sample]:
        """Return the example and the second set for one signature."""
        args, kwargs = captured.example
        more_args, more_kwargs = (self.second or second_inputs)(captured, self.seed)
        return [
            Sample("example", args, kwargs),
            Sample(f"seed {self.seed}", more_args, more_kwargs),
        ]
