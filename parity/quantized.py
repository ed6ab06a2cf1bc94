"""The quantized .tflite of an export: made from the float one, run in both engines, judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.engines import ENGINES, Calls, run_calls
from tpu_export.converters.litert.errors import LiteRtMismatchError
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.litert.quantize import (
    Quantized,
    quantize,
    read_recipe,
)
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.parity.calls import calls_of
from tpu_export.parity.eager import Array, Sample
from tpu_export.parity.job import Job
from tpu_export.parity.judging import (
    as_numbers,
    as_taken,
    judge,
    state_of,
    stepped,
)
from tpu_export.parity.references import reference
from tpu_export.parity.rungs import flat_inputs
from tpu_export.parity.snr import snr
from tpu_export.parity.verdict import Verdict
from tpu_export.parity.verdict_text import verdict_text

Programs: TypeAlias = Mapping[str, LoweredProgram]
_RUN_ON = 8  # calls that the verdict is about; calibration takes all
_ENGINES_DB = 30.0  # kernels may round a step of 8 bits otherwise


@dataclass(frozen=True)
class Judged:
    """A quantized file with its verdict."""

    quantized: Quantized
    verdict: Verdict
    data: str

    @property
    def model(self) -> LiteRtModel:
        """The quantized file."""
        return self.quantized.model

    def lines(self) -> list[str]:
        """Return what to say of it."""
        recipe = self.quantized.recipe
        lines = [
            f"recipe {recipe.name}, sha256 {recipe.digest[:16]}; judged on {self.data}"
        ]
        for name, found in self.quantized.coverage.items():
            lines += [
                f"{name}: {found}",
                *(f"  {reason}" for reason in found.reasons()),
            ]
        lines += self.quantized.changed()
        lines += _borders(self.model)
        return [*lines, *verdict_text(self.verdict).splitlines()]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        recipe = self.quantized.recipe
        return {
            "recipe": recipe.name,
            "rules": recipe.to_json(),
            "sha256": recipe.digest,
            "data": self.data,
            "text": self.lines(),
            "clamped": list(self.quantized.clamped),
            "lint": [f.to_json() for f in self.quantized.findings],
            "coverage": {n: c.to_json() for n, c in self.quantized.coverage.items()},
            "verdict": self.verdict.to_json(),
        }


def quantized(
    job: Job, plain: LiteRtModel, programs: Programs, state: Mapping[str, Array]
) -> Judged:
    """Quantize the float file of a job by its options.

    Raises:
        RecipeError, CalibrationError, QuantizedNothingError, QuantizerFailedError: as of
            `quantize`.
        LiteRtMismatchError: the two engines disagree on the file.
        QuantizationNoiseError, QuantizationSlowError: it is outside the gates.
    """
    stage = job.stages.stage
    with stage("quantize") as words:
        calls, data = calls_of(job)
        done = made(job, plain, programs, state, calls)
        words.append(f"{done.recipe.name} {done.recipe.digest[:16]}")
    with stage("verdict"):
        known = [
            reference(job.signatures[name], program, calls[name][:_RUN_ON])
            for name, program in programs.items()
        ]
        verdict = judge(known, state, plain.path, done.model.path)
        job.litert.gates.check(verdict)
    return Judged(done, verdict, data)


def made(
    job: Job,
    plain: LiteRtModel,
    programs: Programs,
    state: Mapping[str, Array],
    calls: Mapping[str, Sequence[Sample]] | None = None,
) -> Quantized:
    """Quantize, and run the file in both engines.

    Args:
        calls: to calibrate and run on; those of the job's options by default.

    Raises:
        TpuExportError: as `quantized` does, but for the gates.
    """
    options = job.litert
    assert options.recipe is not None
    samples = calls_of(job)[0] if calls is None else calls
    inputs = {
        name: stepped(
            plain.path,
            [flat_inputs(p.signature, c) for c in samples[name]],
            p.signature,
            state_of(p.signature, state),
        )
        for name, p in programs.items()
    }
    taken = inputs if options.calibrate is not None else {}
    recipe = read_recipe(options.recipe)
    done = quantize(plain, recipe, taken, border=options.io_dtype, lint=options.lint)
    _check_engines(done.model, inputs)
    return done


def _check_engines(
    model: LiteRtModel, inputs: Mapping[str, Sequence[Mapping[str, Array]]]
) -> None:
    """Run a call of each signature in both engines, which must agree."""
    for name, calls in inputs.items():
        graph = read_graph(model.path, name)
        call = as_taken(graph, calls[0])
        found = [
            as_numbers(graph, run_calls(model.path, e, [Calls(name, [call])])[0][0])
            for e in ENGINES
        ]
        for output, value in found[0].items():
            other = found[1][output]
            decibels = snr(other, value) if value.dtype.kind == "f" else np.inf
            if decibels < _ENGINES_DB:
                raise LiteRtMismatchError(
                    f"output {output!r} of {name!r}: LiteRT's two engines differ on the "
                    f"quantized file ({decibels:.1f} dB)",
                    hint="take another recipe, and please report the model",
                )


def _borders(model: LiteRtModel) -> list[str]:
    """Say how integers at the inputs and outputs are read."""
    lines = []
    for name in model.signatures:
        graph = read_graph(model.path, name)
        for side in (graph.inputs, graph.outputs):
            for slot, tensor in side.items():
                if scale := graph.scale_of(tensor):
                    lines.append(
                        f"{name}.{slot} is {scale.dtype}: value = {scale.scale:.6g} * "
                        f"(q - {scale.zero})"
                    )
    return lines
