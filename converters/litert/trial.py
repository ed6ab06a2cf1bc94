"""A call of each signature that XLA has answered: what LiteRT's engines must answer too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tpu_export.converters.litert.engines import ENGINES, Calls, Engine, run_calls
from tpu_export.converters.litert.errors import LiteRtMismatchError, LiteRtNanError
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.model import LiteRtModel
from tpu_export.converters.litert.static import StaticProgram
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.signature import Slot, litert_names


@dataclass(frozen=True)
class Trial:
    """One call of a signature, and what XLA:CPU makes of it.

    Attributes:
        limits: how far an output may be off, as a share of itself and of its rms; of those
            that are quantized on the way.
    """

    calls: Calls
    outputs: Mapping[str, Array]
    limits: Mapping[str, float] = field(default_factory=dict)

    def check(self, engine: Engine, found: Sequence[Mapping[str, Array]]) -> None:
        """Compare what an engine answered.

        Raises:
            LiteRtMismatchError: it computes something else.
            LiteRtNanError: likewise, of inputs or to results with NaN.
        """
        (got,) = found
        for output, expected in self.outputs.items():
            if not close(got[output], expected, self.limits.get(output, 0.0)):
                raise self._mismatch(
                    f"output {output!r} of {self.calls.signature!r} in LiteRT's "
                    f"{engine} differs from XLA on the trial's inputs"
                )

    def _mismatch(self, words: str) -> TpuExportError:
        given = [x for call in self.calls.inputs for x in call.values()]
        if any(map(_has_nan, (*given, *self.outputs.values()))):
            return LiteRtNanError(
                f"{words}, where there is NaN",
                hint="its maximum, minimum, argmax, argmin and pooling kernels lose NaN: give "
                "an example without, put torch.nan_to_num before them, or export for cloud-tpu",
            )
        hint = (
            "please report the model, unless it makes NaN inside (TPX-0608); export for "
            "cloud-tpu meanwhile"
        )
        return LiteRtMismatchError(words, hint=hint)


def _has_nan(x: Array) -> bool:
    return bool(x.dtype.kind == "f" and np.isnan(x).any())


@dataclass(frozen=True)
class Candidate:
    """A converted file that no engine has run yet. Only a checked one may be kept."""

    model: LiteRtModel
    trials: Sequence[Trial]

    def within(self, limits: Iterable[Mapping[str, float]]) -> Candidate:
        """Return it with limits for its trials, in order."""
        pairs = zip(self.trials, limits, strict=True)
        return replace(self, trials=[replace(t, limits=found) for t, found in pairs])

    def run(
        self, engine: Engine, further: Sequence[Calls] = ()
    ) -> list[list[dict[str, Array]]]:
        """Check the trials in an engine and return what it makes of further calls.

        The engine starts once for all of them.

        Raises:
            LiteRtMismatchError, LiteRtNanError: it computes something else than XLA.
            LiteRtUnloadableError, LiteRtCrashedError: as of `run_calls`.
        """
        sequences = [*(t.calls for t in self.trials), *further]
        found = run_calls(self.model.path, engine, sequences)
        for trial, answer in zip(self.trials, found, strict=False):
            trial.check(engine, answer)
        return found[len(self.trials) :]

    def checked(self) -> LiteRtModel:
        """Return the model after its trials in both engines."""
        for engine in ENGINES:
            self.run(engine)
        return self.model


def answered(
    name: str,
    program: StaticProgram,
    weights: Mapping[str, Any],
    inputs: Mapping[str, Array] | None = None,
) -> Trial:
    """Make a trial of a signature: its initial state, and inputs given or drawn.

    Args:
        name: of the signature.
        program: what XLA runs, and the converter took.
        weights: the tensors that state slots start from.
        inputs: by name.
    """
    generator = np.random.default_rng(0)
    rest = program.spec.arguments[len(program.weights) :]
    given = [
        as_numpy(weights[s.name])
        if s.kind == "state"
        else (inputs or {}).get(s.name, draw(s, generator))
        for s in rest
    ]
    results = program.run(given)
    feeds = dict(zip(litert_names(rest, result=False), given, strict=True))
    outputs = litert_names(program.spec.results, result=True)
    return Trial(Calls(name, [feeds]), dict(zip(outputs, results, strict=True)))


def draw(slot: Slot, generator: np.random.Generator) -> Array:
    """Draw an input by its dtype: normal floats, fair booleans, integers 0 and 1.

    An integer may be an index; any table but the least has a place 1.
    """
    shape = [d for d in slot.shape if isinstance(d, int)]
    if slot.dtype.startswith("float"):
        return generator.standard_normal(shape).astype(slot.dtype)
    return generator.integers(0, 2, shape).astype(slot.dtype)


def close(actual: Array, expected: Array, limit: float = 0.0) -> bool:
    """Tell whether two arrays agree, floats up to another order of summation, or a limit."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    if expected.dtype.kind not in "f":
        return bool(np.array_equal(actual, expected))
    share = max(limit, 1e-3)
    finite = expected[np.isfinite(expected)]
    scale = (
        float(np.sqrt(np.mean(finite.astype(np.float64) ** 2))) if finite.size else 0.0
    )
    return bool(
        np.allclose(
            actual, expected, rtol=share, atol=share * scale + 1e-6, equal_nan=True
        )
    )
