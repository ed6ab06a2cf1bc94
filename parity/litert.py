"""The LiteRT target: the same captured graph as a .tflite, proved in both engines."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tpu_export.converters.litert import LiteRtModel, build
from tpu_export.converters.litert.engines import ENGINES, Calls, Engine
from tpu_export.converters.litert.model import LiteRtReport
from tpu_export.converters.litert.quantize.lint import Lint
from tpu_export.converters.litert.transposes import table, total
from tpu_export.converters.litert.trial import Candidate
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.buckets import Buckets, check_buckets
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.stages import lower
from tpu_export.parity.annotated import annotated
from tpu_export.parity.eager import Array, Call, Run, Sample
from tpu_export.parity.io_layout import laid_out_job
from tpu_export.parity.job import Job, Pending
from tpu_export.parity.judging import initial_state
from tpu_export.parity.litert_document import Known
from tpu_export.parity.litert_options import DynamicDims, IoLayout, LiteRtOptions
from tpu_export.parity.litert_sizes import check_shared_state, sized_job
from tpu_export.parity.litert_symbolic import file_names, folded
from tpu_export.parity.models import captures
from tpu_export.parity.quantized import made, quantized
from tpu_export.parity.references import Reference, compare, references
from tpu_export.parity.report import ParityRow
from tpu_export.parity.rounding import limits_on
from tpu_export.parity.rungs import flat_inputs, with_state
from tpu_export.parity.samples import Samples
from tpu_export.runtime.signature import Signature

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class LiteRtRung:
    """What a .tflite gave on one of LiteRT's engines, by signature."""

    engine: Engine
    runs: Mapping[str, Run]

    @property
    def name(self) -> str:
        """The engine that computed."""
        return f"tflite {self.engine}"

    def run(self, signature: Signature, samples: Sequence[Sample]) -> Run:
        """Return the calls that were made on the samples."""
        return self.runs[signature.name]


@dataclass
class _PendingFile:
    candidate: Candidate
    job: Job
    known: Sequence[Reference]
    state: Mapping[str, Array]
    programs: Mapping[str, LoweredProgram]
    estimates: list[dict[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    quantization: dict[str, Any] | None = None
    transposes: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    rows: list[ParityRow] = field(default_factory=list)

    def prove(self) -> list[ParityRow]:
        """Compare both engines with XLA, then with torch eager; each starts once."""
        calls = [self._calls(reference) for reference in self.known]
        rows = []
        for engine in ENGINES:
            found = self.candidate.run(engine, calls)
            runs = {
                reference.signature.name: _run(reference.signature, c, outputs)
                for reference, c, outputs in zip(self.known, calls, found, strict=True)
            }
            rung = LiteRtRung(engine, runs)
            rows += compare(self.known, rung, self.job.tolerance)
        self.rows = rows
        return rows

    def _calls(self, reference: Reference) -> Calls:
        found = _calls(reference, self.state)
        if self.job.litert.dynamic_dims != "symbolic":
            return found
        return replace(
            found, signature=file_names(self.job.signatures)[found.signature]
        )

    def commit(self) -> Path:
        """Write the file under its final name, quantized first where that is asked for."""
        model = self.candidate.model
        if self.job.litert.recipe is not None:
            judged = quantized(self.job, model, self.programs, self.state)
            self.quantization = judged.to_json()
            model = judged.model
        self._tell(model.report)
        known = Known(
            self.programs,
            self.known,
            [trial.calls for trial in self.candidate.trials],
            self.state,
            self.rows,
            self.quantization,
            self.notes,
        )
        job = self.job
        if job.litert.dynamic_dims == "symbolic":
            job, known = folded(job, known)
        with self.job.stages.stage("write"):
            annotated(job, model, known).save(self.job.output)
        return self.job.output

    def _tell(self, report: LiteRtReport) -> None:
        self.notes.append(total(report.transposes))
        self.notes += report.integers.lines()
        for row in table(report.transposes):
            _LOG.debug(" | ".join(row))
        self.transposes = {
            name: [t.to_json() for t in found]
            for name, found in report.transposes.items()
        }


def _calls(reference: Reference, state: Mapping[str, Array]) -> Calls:
    """Return the calls on a reference's samples; the first starts from the initial state."""
    signature = reference.signature
    slots = {slot.name: state[slot.name] for slot in signature.state}
    inputs = [flat_inputs(signature, sample) for sample in reference.samples]
    return Calls(
        signature.name,
        [with_state(inputs[0], slots), *inputs[1:]],
        carried=[f"state.{name}" for name in slots],
    )


def _run(
    signature: Signature, calls: Calls, results: Sequence[Mapping[str, Array]]
) -> Run:
    """Return LiteRT's flat inputs and outputs as the calls of a rung."""
    found = [
        Call(
            tuple(outputs[spec.name] for spec in signature.outputs),
            tuple(
                outputs[f"input.{spec.name}"]
                if spec.name in signature.mutated_inputs
                else inputs[spec.name]
                for spec in signature.inputs
            ),
        )
        for inputs, outputs in zip(calls.inputs, results, strict=True)
    ]
    last = results[-1]
    state = {slot.name: last[f"state.{slot.name}"] for slot in signature.state}
    return Run(tuple(found), state)


@contextmanager
def tflite(job: Job) -> Iterator[Pending]:
    """Make a .tflite from every signature of the job."""
    stage = job.stages.stage
    job.litert.check()
    with stage("lower"):
        programs = _lowered(job.signatures)
        check_shared_state(job.litert, programs)
    with stage("convert"):
        candidate = _candidate(job, programs)
        if not job.parity:
            candidate.checked()
    known: Sequence[Reference] = ()
    if job.parity:
        with stage("eager"):
            samples = Samples(job.seed, job.second_inputs)
            known = references(job.signatures, programs, samples)
    state = initial_state(programs.values())
    yield _PendingFile(candidate, job, known, state, programs, notes=[*job.notes])


def _lowered(signatures: Mapping[str, Captured]) -> dict[str, LoweredProgram]:
    """Lower each graph once, whatever number of signatures it is."""
    made: dict[int, LoweredProgram] = {}
    for captured in signatures.values():
        if id(captured.program) not in made:
            made[id(captured.program)] = lower(captured, target="litert").program
    return {
        name: _named(made[id(captured.program)], name)
        for name, captured in signatures.items()
    }


def _named(program: LoweredProgram, name: str) -> LoweredProgram:
    return replace(program, signature=replace(program.signature, name=name))


def to_litert(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    buckets: Buckets | None = None,
    dynamic_dims: DynamicDims = "buckets",
    recipe: str | Path | None = None,
    calibration: str | Sequence[Mapping[str, Any]] | None = None,
    io_layout: IoLayout = "nchw",
    lint: Lint = "auto",
) -> LiteRtModel:
    """Convert a model to LiteRT, and quantize it where a recipe says so.

    Args:
        model: nn.Module, function, ExportedProgram, .pt2 path, a Captured, or captured
            signatures by name.
        args: example inputs; kwargs: likewise.
        dynamic_shapes: as torch.export takes them; they name the dynamic dimensions.
        buckets: their sizes, a signature for each combination; chosen where they have a
            maximum and none is given.
        dynamic_dims: "buckets", "example" for one signature of the example's sizes, or "symbolic"
            for one of any size, where every op can compute its own.
        recipe: "dynamic-int8" and the like, or a .toml file (docs/litert.md); static ones
            need calibration: calls as dicts of arrays by input, or what --calibrate takes.
        io_layout: "nhwc": inputs and outputs of 4 dimensions have their channels last in the
            file ("ndhwc": of 5, "nlc": of 3); or by name, {"image": "nhwc"}. Calibration
            stays as torch has it.
        lint: "auto": ops that the recipe would spoil get another number format, and far values
            of masks are clamped; "masks": the latter only; "off": neither.

    Returns:
        A model with .save(path), .run(…) and .report. It was loaded and run in both LiteRT
        engines against XLA; `export(…, target="litert")` also compares with torch eager.

    Raises:
        LiteRtUnsupportedOpsError: ops that LiteRT cannot hold or computes wrongly.
        RecipeError, CalibrationError, QuantizedNothingError, WeightsLostError: as of
            `quantize`.
    """
    options = LiteRtOptions(
        recipe, calibration, dynamic_dims=dynamic_dims, io_layout=io_layout, lint=lint
    )
    options.check()
    signatures = captures(model, tuple(args), kwargs, dynamic_shapes)
    check_buckets(signatures, buckets or {})
    job = Job(signatures, Path(), buckets=buckets or {}, litert=options)
    job = laid_out_job(sized_job(job))
    programs = _lowered(job.signatures)
    check_shared_state(options, programs)
    plain = _candidate(job, programs).checked()
    if recipe is None:
        return plain
    return made(job, plain, programs, initial_state(programs.values())).model


def _candidate(job: Job, programs: Mapping[str, LoweredProgram]) -> Candidate:
    """Convert; the trials take second inputs, which are like the example's: zeros hide much."""
    draw = Samples(job.seed, job.second_inputs)
    captured = job.signatures.items()
    drawn = {name: draw.of(c)[-1] for name, c in captured}
    candidate = build(
        programs,
        dims={name: c.example_dims() for name, c in captured},
        inputs={n: flat_inputs(c.signature, drawn[n]) for n, c in captured},
        symbolic=job.litert.dynamic_dims == "symbolic",
    )
    return candidate.within(limits_on(c, programs[n], drawn[n]) for n, c in captured)
