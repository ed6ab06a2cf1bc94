"""The LiteRT form of a .tpuexe, and which engine is the faster one on this host."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from tpu_export.converters.litert import LiteRtModel, convert
from tpu_export.converters.litert.race import interleaved
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.buckets import compiled_sizes
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.save import CpuForms, save, without_collisions
from tpu_export.exporter.stages import Compiled, lower
from tpu_export.parity.eager import Sample
from tpu_export.parity.job import Job
from tpu_export.parity.rungs import array_arguments, flat_inputs
from tpu_export.parity.samples import Samples
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.litert import UnknownCpuEngineError
from tpu_export.runtime.manifest import CpuEngine, litert_signature
from tpu_export.runtime.program import Program, load
from tpu_export.runtime.signature import sizes_text

CHOICES = ("xla", "auto", "litert")
_PRODUCERS = ("ai-edge-litert", "litert-converter", "jaxlib")
# One signature for one set of sizes, and a call of it.
_Case: TypeAlias = tuple[Captured, Mapping[str, int], Sample]


@dataclass(frozen=True)
class Chosen:
    """What an artifact takes along for CPUs.

    Attributes:
        forms: None where XLA alone runs on a CPU.
        notes: the measured times, or why there is no LiteRT form.
    """

    forms: CpuForms | None = None
    notes: tuple[str, ...] = ()


def check_cpu_engine(choice: str, target: str) -> None:
    """Refuse a choice before any work.

    Raises:
        UnknownCpuEngineError: it is none of CHOICES, or the target makes no .tpuexe.
    """
    if choice not in CHOICES:
        raise UnknownCpuEngineError(
            f"unknown CPU engine {choice!r}", hint=f"engines are {', '.join(CHOICES)}"
        )
    if choice != "xla" and target != "cloud-tpu":
        raise UnknownCpuEngineError(
            f"target {target} has no CPU engine", hint="they are for target cloud-tpu"
        )


@contextmanager
def chosen(job: Job, compiled: Compiled) -> Iterator[Chosen]:
    """Make the LiteRT form of every signature and size, and time it against XLA.

    Its file is temporary: it goes when the block ends.

    Raises:
        TpuExportError: with cpu_engine "litert", what LiteRT refuses.
    """
    if job.cpu_engine == "xla":
        yield Chosen()
        return
    with job.stages.stage("cpu engine") as words:
        try:
            cases = [*_cases(job, compiled)]
            model = _converted(job, cases)
        except TpuExportError as error:
            if job.cpu_engine == "litert":
                raise
            words.append("xla")
            yield Chosen(notes=(f"XLA runs on a CPU, LiteRT cannot: {error}",))
            return
        found = _decided(job, compiled, cases, model)
        words.append(", ".join(dict.fromkeys(e.engine for e in found.engines)))
    yield Chosen(found, tuple(map(_note, found.engines)))


def _cases(job: Job, compiled: Compiled) -> Iterator[_Case]:
    for name, low in compiled.signatures.items():
        captured = job.signatures[name]
        if not low.program.counts:
            sizes = compiled_sizes(captured, job.buckets)
            samples = Samples(job.seed, job.second_inputs, {name: sizes})
            for dims, sample in zip(sizes, samples.of(captured)[2:], strict=True):
                yield captured, dims, sample


def _converted(job: Job, cases: Sequence[_Case]) -> LiteRtModel:
    programs = without_collisions(
        {c.name: lower(c, target="litert").program for c, _, _ in cases}
    )
    named: dict[str, LoweredProgram] = {}
    dims, inputs = {}, {}
    for captured, sizes, sample in cases:
        name = litert_signature(captured.name, sizes)
        named[name], dims[name] = programs[captured.name], sizes
        inputs[name] = flat_inputs(captured.signature, sample)
    return convert(named, dims=dims, inputs=inputs)


def _decided(
    job: Job, compiled: Compiled, cases: Sequence[_Case], model: LiteRtModel
) -> CpuForms:
    """Write an artifact with every form, time both engines in it, and keep the faster."""
    makers = {name: version(name) for name in _PRODUCERS}
    all_ = CpuForms(
        model,
        tuple(
            CpuEngine(c.name, dict(sizes), "litert", CpuForms.ENTRY, {}, makers)
            for c, sizes, _ in cases
        ),
    )
    with tempfile.TemporaryDirectory(prefix="tpu-export-race-") as folder:
        path = Path(folder) / "race.tpuexe"
        programs = {n: low.program for n, low in compiled.signatures.items()}
        with save(path, programs, compiled.targets, forms=all_) as pending:
            pending.commit()
        times = [*_times(path, cases)]
    engines = []
    for engine, both in zip(all_.engines, times, strict=True):
        slow = both["litert"] >= both["xla"] and job.cpu_engine == "auto"
        name, main = ("xla", None) if slow else ("litert", engine.main)
        engines.append(replace(engine, engine=name, main=main, microseconds=both))
    return replace(all_, engines=tuple(engines))


def _times(path: Path, cases: Sequence[_Case]) -> Iterator[dict[str, int]]:
    """Yield the median microseconds of a call in each engine, by case; they take turns."""
    with (
        load(path, device="cpu", cpu_engine="litert") as litert,
        load(path, device="cpu", cpu_engine="xla") as xla,
    ):
        for captured, _, sample in cases:
            runs = [_call(p, captured.name, sample) for p in (litert, xla)]
            rounds = interleaved(runs, rounds=7, seconds=1.0)
            fast, other = (int(statistics.median(r) * 1e6) for r in rounds)
            yield {"litert": fast, "xla": other}


def _call(program: Program, name: str, sample: Sample) -> Callable[[], object]:
    args, kwargs = array_arguments(sample)
    stateful = bool(program[name].signature.state)

    def run() -> object:
        if stateful:  # a cache that is full may not be written further
            program.reset_state()
        return program[name](*args, **kwargs)

    return run


def _note(engine: CpuEngine) -> str:
    litert, xla = engine.microseconds["litert"], engine.microseconds["xla"]
    sizes = f" {sizes_text(engine.dims)}" if engine.dims else ""
    return (
        f"{engine.signature}{sizes}: {engine.engine} runs on a CPU; LiteRT takes "
        f"{litert / 1e3:.3g} ms, XLA {xla / 1e3:.3g} ms on this host"
    )
