"""What an export can make: each target writes a pending result, proves it, commits it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.converters.tpu.cost import CostReport
from tpu_export.exporter.buckets import Sizes, compiled_sizes, left_out
from tpu_export.exporter.save import save
from tpu_export.exporter.stages import compile_signatures, lower
from tpu_export.parity.cpu_engines import chosen
from tpu_export.parity.job import Job, Pending
from tpu_export.parity.litert import tflite
from tpu_export.parity.references import Reference, compare, golden, references
from tpu_export.parity.report import ParityRow
from tpu_export.parity.rungs import ProgramRung
from tpu_export.parity.samples import Samples, empties
from tpu_export.runtime.artifact import ArtifactWriter, unpack
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.litert import CpuEngineName
from tpu_export.runtime.program import load
from tpu_export.runtime.signature import sizes_text

# An artifact is at most 1 % larger than its weights and executables: golden arrays may
# take a part of that, or these few bytes.
GOLDEN_BYTES = 64 * 1024
GOLDEN_SHARE = 200
_SIZES_SHOWN = 16


class UnknownTargetError(TpuExportError):
    """A target that this version does not make."""

    code = "TPX-0702"

    def __init__(self, target: str) -> None:
        """Name the target and those there are."""
        super().__init__(
            f"unknown target {target!r}", hint=f"targets are {', '.join(WRITERS)}"
        )


@dataclass
class _PendingArtifact:
    writer: ArtifactWriter
    job: Job
    known: Sequence[Reference]
    litert: bool = False
    estimates: list[dict[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    quantization: dict[str, Any] | None = None
    transposes: dict[str, list[dict[str, object]]] = field(default_factory=dict)

    def prove(self) -> list[ParityRow]:
        """Load the file as a serving process does, on the CPU, and compare."""
        rows = self._rows("xla", "")
        if self.litert:  # the artifact runs it, and XLA where LiteRT is not installed
            rows += self._rows("auto", "LiteRT")
        return rows

    def _rows(self, cpu_engine: CpuEngineName, name: str) -> list[ParityRow]:
        path = self.writer.path
        with load(path, device="cpu", cpu_engine=cpu_engine) as program:
            self.notes += [
                f"{name}: {_every_size(origin, program[name].buckets)}"
                for name, origin in program.origin.items()
            ]
            return compare(self.known, ProgramRung(program, name), self.job.tolerance)

    def commit(self) -> Path:
        """Give the file, or the folder made from it, its final name."""
        if self.job.target == "stablehlo":
            return unpack(self.writer.path, self.job.output)
        self.writer.commit()
        return self.job.output


def _every_size(origin: str, sizes: Sequence[Sizes]) -> str:
    """Return where code came from, with every set of sizes that has an executable.

    >>> _every_size("executable cpu/host batch=1", [{"batch": 1}, {"batch": 8}])
    'executables cpu/host for 2 sets of sizes: batch=1, batch=8'
    """
    kind, _, first = origin.partition(" ")
    if len(sizes) < 2 or kind != "executable":
        return origin
    texts = [sizes_text(each) for each in sizes]
    platform = first.removesuffix(f" {texts[0]}")
    shown = ", ".join(texts[:_SIZES_SHOWN])
    more = f" and {len(texts) - _SIZES_SHOWN} more" if len(texts) > _SIZES_SHOWN else ""
    return f"executables {platform} for {len(texts)} sets of sizes: {shown}{more}"


@contextmanager
def tpuexe(job: Job) -> Iterator[Pending]:
    """Write a .tpuexe: portable programs, weights, executables."""
    stage = job.stages.stage
    topologies = () if job.target == "stablehlo" else job.topologies
    with stage("lower"):
        lowered = {name: lower(c) for name, c in job.signatures.items()}
    programs = {name: low.program for name, low in lowered.items()}
    with stage("compile", ", ".join([*topologies, "cpu"])):
        compiled = compile_signatures(lowered, topologies, buckets=job.buckets)
    known: Sequence[Reference] = ()
    if job.parity:
        with stage("eager"):
            sizes = _bucketed(job, programs)
            samples = Samples(job.seed, job.second_inputs, sizes)
            known = references(job.signatures, programs, samples)
    weights = sum(t.nbytes for p in programs.values() for t in p.weights.values())
    kept = golden(known, max(GOLDEN_BYTES, weights // GOLDEN_SHARE))
    with ExitStack() as stack:
        engines = stack.enter_context(chosen(job, compiled))
        with stage("write", str(job.output)):
            forms = engines.forms
            writing = save(_file(job), programs, compiled.targets, kept, forms)
            writer = stack.enter_context(writing)
        estimates = [
            {"signature": name, "dims": dict(target.dims), **_estimate(target.report)}
            for name, targets in compiled.targets.items()
            for target in targets
            if target.report is not None
        ]
        notes = [n for c in job.signatures.values() for n in left_out(c, job.buckets)]
        notes += [_unproven(name) for name, p in programs.items() if _own_tpu(p)]
        notes += [_uncompiled(p) for p in programs.values() if p.counts]
        notes += engines.notes
        litert = any(e.main for e in forms.engines) if forms else False
        yield _PendingArtifact(writer, job, known, litert, estimates, notes)


def _bucketed(
    job: Job, programs: Mapping[str, LoweredProgram]
) -> dict[str, list[Sizes]]:
    """Return the sizes to prove besides the example's, by signature."""
    sizes = {
        name: empties(captured, programs[name].signature)
        for name, captured in job.signatures.items()
    }
    for name, captured in job.signatures.items():
        if set(job.buckets) & {dim.name for dim in captured.signature.dims}:
            buckets = compiled_sizes(captured, job.buckets)
            sizes[name] = [*buckets, *(s for s in sizes[name] if s not in buckets)]
    return sizes


def _file(job: Job) -> Path:
    """Return the file to write: for a folder of StableHLO one beside it, then unpacked."""
    if job.target != "stablehlo":
        return job.output
    folder = job.output.resolve()  # it may be there already, from an earlier export
    return folder.parent / f".{folder.name}.tpuexe"


def _own_tpu(program: LoweredProgram) -> bool:
    functions = [program.main, *([program.prepare] if program.prepare else [])]
    return any("tpu" in function.modules for function in functions)


def _uncompiled(program: LoweredProgram) -> str:
    sizes = ", ".join(dim.name for dim in program.signature.counted)
    return (
        f"{program.signature.name}: no executable for any target, because the data decides "
        f"{sizes}; each size is compiled at its first call"
    )


def _unproven(name: str) -> str:
    return (
        f'{name}: on TPU it has rules of your own (lowers(platform="tpu")), which are '
        "compiled and not run: the proof is about the general rules"
    )


def _estimate(report: CostReport) -> dict[str, object]:
    return {
        "topology": report.topology,
        "cycles": report.cycles,
        "microseconds": report.seconds * 1e6,
        "flops": report.flops,
        "bytes": report.bytes_accessed,
        "hbm_used": report.memory.total,
        "hbm_total": report.memory.available,
        "note": report.note,
    }


WRITERS: dict[str, Callable[[Job], AbstractContextManager[Pending]]] = {
    "cloud-tpu": tpuexe,
    "litert": tflite,
    "stablehlo": tpuexe,
}
