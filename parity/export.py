"""The main job: capture, lower, compile, write, prove.

It lives in parity because nothing gets its final name before the proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.quantize.errors import RecipeError
from tpu_export.exporter.buckets import BucketError, Buckets, check_buckets
from tpu_export.exporter.progress import Progress, Stages
from tpu_export.exporter.sources import Source
from tpu_export.exporter.stages import DEFAULT_TOPOLOGIES
from tpu_export.parity.cpu_engines import check_cpu_engine
from tpu_export.parity.io_layout import laid_out_job
from tpu_export.parity.job import Job
from tpu_export.parity.litert_options import LiteRtOptions
from tpu_export.parity.litert_sizes import sized_job
from tpu_export.parity.models import captures
from tpu_export.parity.preprocessed import preprocessed_job
from tpu_export.parity.report import ParityReport
from tpu_export.parity.targets import WRITERS, UnknownTargetError
from tpu_export.runtime.errors import TpuExportError, counted


class ParityFailedError(TpuExportError):
    """The artifact does not compute what the model computes; nothing was written."""

    code = "TPX-0701"

    def __init__(self, report: ParityReport) -> None:
        """Name the worst row."""
        worst = report.worst
        where = (
            f"output {worst.output!r} of {worst.signature!r} on {worst.rung} "
            f"({worst.inputs}): max rel {worst.max_rel:.2e}, allowed "
            f"{worst.threshold:.0e}{', ' + worst.note if worst.note else ''}"
            if worst
            else "no output could be compared"
        )
        super().__init__(
            f"parity with torch eager failed: {where}",
            hint="nothing was written; find the op with `tpu-export debug MODEL`, "
            "or write it all the same with --no-parity",
        )
        self.report = report


@dataclass(frozen=True)
class ExportResult:
    """What an export made.

    Attributes:
        output: the file or folder that was written.
        target: cloud-tpu, litert or stablehlo.
        size: bytes on disk.
        stages: (stage, seconds) in order.
        parity: the proof; None with parity=False.
        estimates: per signature and topology, the compiler's own estimates.
        notes: what a careful reader should know.
        quantization: recipe, coverage and verdict of a quantized .tflite.
        transposes: shape, order, bytes and cause of each TRANSPOSE of a .tflite, by signature.
    """

    output: Path
    target: str
    size: int
    signatures: tuple[str, ...]
    stages: tuple[tuple[str, float], ...]
    parity: ParityReport | None
    estimates: tuple[dict[str, object], ...]
    notes: tuple[str, ...] = ()
    quantization: dict[str, Any] | None = None
    transposes: Mapping[str, Sequence[Mapping[str, object]]] = field(
        default_factory=dict
    )

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON-able values."""
        plain = asdict(self)
        plain["output"] = str(self.output)
        plain["parity"] = self.parity.to_json() if self.parity else None
        return plain


def export(
    model: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str = "cloud-tpu",
    topologies: Sequence[str] = DEFAULT_TOPOLOGIES,
    dynamic_shapes: Any = None,
    buckets: Buckets | None = None,
    output: str | Path = "m.tpuexe",
    parity: bool = True,
    tolerance: float | None = None,
    seed: int = 1,
    cpu_engine: str = "xla",
    litert: LiteRtOptions | None = None,
    progress: Progress | None = None,
) -> ExportResult:
    """Export a model and prove the result against torch eager.

    Args:
        model: nn.Module, function, ExportedProgram, .pt2 path, a Captured, a Source of
            the command line, or {"prefill": captured, "decode": captured} for several
            signatures.
        args: example inputs; kwargs: likewise.
        target: "cloud-tpu" (.tpuexe), "litert" (.tflite) or "stablehlo" (a folder).
        topologies: TPU topologies to compile for; () = portable program and CPU only.
        dynamic_shapes: as torch.export takes them; they name the dynamic dimensions.
        buckets: sizes to compile for, as {"batch": [1, 8], "seq": [128]}: each combination
            gets executables and is proven. Other sizes run from the portable program. With
            target litert each is a signature of the file, and there are no others.
        tolerance: overrides the threshold of every floating-point output (see
            docs/parity.md).
        seed: of the second set of inputs that parity runs.
        cpu_engine: what runs the .tpuexe on a CPU: "xla"; "litert", whose .tflite the
            artifact then has too, with the weights once more; or "auto", the faster one as
            measured here.
        litert: for target litert: how to quantize, and limits for the verdict.

    Raises:
        TpuExportError: a subclass for each cause; nothing is left under `output`.
    """
    if target not in WRITERS:
        raise UnknownTargetError(target)
    if buckets and target == "stablehlo":
        raise BucketError(
            f"target {target} has no buckets",
            hint="they are for targets cloud-tpu and litert",
        )
    if litert is not None and target != "litert":
        raise RecipeError(
            f"target {target} is not quantized",
            hint="LiteRtOptions are for target litert",
        )
    check_cpu_engine(cpu_engine, target)
    stages = Stages(progress)
    second = model.second_inputs if isinstance(model, Source) else None
    with stages.stage("capture") as words:
        signatures = captures(model, args, kwargs, dynamic_shapes)
        check_buckets(signatures, buckets or {})
        words.append(", ".join(signatures))
    job = Job(
        signatures=signatures,
        output=Path(output),
        target=target,
        topologies=tuple(topologies),
        buckets=buckets or {},
        parity=parity,
        tolerance=tolerance,
        seed=seed,
        second_inputs=second,
        cpu_engine=cpu_engine,
        litert=litert or LiteRtOptions(),
        stages=stages,
    )
    if target == "litert":
        job = laid_out_job(sized_job(preprocessed_job(job)))
    return run(job)


def run(job: Job) -> ExportResult:
    """Run a job whose signatures are captured already."""
    with WRITERS[job.target](job) as pending:
        report = None
        if job.parity:
            with job.stages.stage("parity") as words:
                rows = pending.prove()
                report = ParityReport(tuple(rows))
                words.append(counted(len(rows), "comparison"))
            if not report.passed:
                raise ParityFailedError(report)
        output = pending.commit()
    return ExportResult(
        output=output,
        target=job.target,
        size=_size(output),
        signatures=tuple(job.signatures),
        stages=tuple(job.stages.times),
        parity=report,
        estimates=tuple(pending.estimates),
        notes=tuple(pending.notes),
        quantization=pending.quantization,
        transposes=pending.transposes,
    )


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return path.stat().st_size
