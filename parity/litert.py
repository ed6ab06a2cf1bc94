"""The LiteRT target: the same captured graph as a .tflite, proved in both engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tpu_export.converters.litert import LiteRtModel, convert
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.eager import Array, Call, Run, Sample
from tpu_export.parity.job import Job, Pending
from tpu_export.parity.references import Reference, compare, references
from tpu_export.parity.report import ParityRow
from tpu_export.parity.rungs import flat_inputs
from tpu_export.parity.samples import Samples
from tpu_export.runtime.signature import Signature

Engine = Literal["interpreter", "compiled"]
ENGINES: tuple[Engine, ...] = ("interpreter", "compiled")


@dataclass(frozen=True)
class LiteRtRung:
    """A .tflite on one of LiteRT's engines. State slots are explicit inputs and outputs."""

    model: LiteRtModel
    engine: Engine
    state: Mapping[str, Array]

    @property
    def name(self) -> str:
        """The engine that computes."""
        return f"tflite {self.engine}"

    def run(self, signature: Signature, samples: Sequence[Sample]) -> Run:
        """Call the signature from the initial state, handing state from call to call."""
        slots = {slot.name: self.state[slot.name] for slot in signature.state}
        calls = []
        for sample in samples:
            inputs = flat_inputs(signature, sample)
            given = {**inputs, **{f"state.{n}": v for n, v in slots.items()}}
            results = self.model.run(
                signature=signature.name, engine=self.engine, **given
            )
            slots = {name: np.asarray(results[f"state.{name}"]) for name in slots}
            outputs = [np.asarray(results[spec.name]) for spec in signature.outputs]
            written = [
                np.asarray(results[f"input.{name}"])
                if name in signature.mutated_inputs
                else value
                for name, value in inputs.items()
            ]
            calls.append(Call(tuple(outputs), tuple(written)))
        return Run(tuple(calls), slots)


@dataclass
class _PendingFile:
    model: LiteRtModel
    job: Job
    known: Sequence[Reference]
    state: Mapping[str, Array]
    estimates: list[dict[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def prove(self) -> list[ParityRow]:
        """Compare both engines with torch eager."""
        return [
            row
            for engine in ENGINES
            for row in compare(
                self.known,
                LiteRtRung(self.model, engine, self.state),
                self.job.tolerance,
            )
        ]

    def commit(self) -> Path:
        """Write the file under its final name."""
        self.model.save(self.job.output)
        return self.job.output


@contextmanager
def tflite(job: Job) -> Iterator[Pending]:
    """Make a .tflite from every signature of the job."""
    from tpu_export.converters.stablehlo.arrays import as_numpy

    stage = job.stages.stage
    with stage("lower"):
        programs = {
            name: lower(c, target="litert").program
            for name, c in job.signatures.items()
        }
    with stage("convert"):
        dims = {
            n: s for c in job.signatures.values() for n, s in c.example_dims().items()
        }
        model = convert(programs, dims=dims)
    known: Sequence[Reference] = ()
    if job.parity:
        with stage("eager"):
            samples = Samples(job.seed, job.second_inputs)
            known = references(job.signatures, programs, samples)
    state = {
        slot.name: np.array(as_numpy(p.weights[slot.name]))
        for p in programs.values()
        for slot in p.signature.state
    }
    yield _PendingFile(model, job, known, state)


def to_litert(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> LiteRtModel:
    """Convert a model to LiteRT.

    Args:
        model: nn.Module, function, ExportedProgram, .pt2 path, or a Captured.
        args: example inputs; kwargs: likewise.
        dynamic_shapes: as torch.export takes them; the example's sizes are compiled in.

    Returns:
        A model with .save(path), .run(…) and .report. It was loaded and run in both LiteRT
        engines against XLA; `export(…, target="litert")` also compares with torch eager.

    Raises:
        LiteRtUnsupportedOpsError: ops that LiteRT cannot hold or computes wrongly.
    """
    captured = (
        model
        if isinstance(model, Captured)
        else capture(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    )
    program = lower(captured, target="litert").program
    return convert({captured.name: program}, dims=captured.example_dims())
