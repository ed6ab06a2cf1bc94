"""Whether what was exported computes what the model computes: `tx.parity`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.sources import Source
from tpu_export.exporter.stages import Lowered, compile_signatures, lower
from tpu_export.parity.models import captures
from tpu_export.parity.recorded import recorded
from tpu_export.parity.references import compare, references
from tpu_export.parity.report import ParityReport
from tpu_export.parity.rungs import ProgramRung
from tpu_export.parity.samples import Samples, empties
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.inputs import describe_tensor
from tpu_export.runtime.program import Program, load
from tpu_export.runtime.signature import TensorSpec

_ANOTHER = "name the model that the artifact was exported from, or export it again"


class AnotherModelError(TpuExportError):
    """The artifact was not made from the model that it is compared with."""

    code = "TPX-0705"


def parity(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    artifact: str | Path | None = None,
    tolerance: float | None = None,
    seed: int = 1,
) -> ParityReport:
    """Compare an artifact with the model it was made from.

    Args:
        model: what `export` takes; or the path of a .tpuexe alone, which is then compared
            with eager's outputs as they were recorded in it.
        args: example inputs; kwargs: likewise.
        artifact: the .tpuexe to check; None builds one and throws it away.
        tolerance: overrides the threshold of every floating-point output.
        seed: of the second set of inputs.

    Raises:
        NothingRecordedError: the .tpuexe holds no recorded outputs.
        AnotherModelError: the artifact has other signatures, inputs or outputs than the model.
    """
    if isinstance(model, str | Path) and Path(model).suffix == ".tpuexe":
        return recorded(Path(model), tolerance)
    captured = captures(model, args, kwargs, dynamic_shapes)
    second = model.second_inputs if isinstance(model, Source) else None
    lowered = {name: lower(c) for name, c in captured.items()}
    programs = {name: low.program for name, low in lowered.items()}
    with ExitStack() as stack:
        path = artifact or _built(lowered, stack)
        program = stack.enter_context(load(path, device="cpu"))
        _same_model(programs, program, path)
        samples = Samples(seed, second, _buckets(program, captured))
        known = references(captured, programs, samples)
        return ParityReport(tuple(compare(known, ProgramRung(program), tolerance)))


def _same_model(
    lowered: Mapping[str, LoweredProgram], program: Program, path: str | Path
) -> None:
    for name, model in lowered.items():
        if name not in program.signatures:
            have = ", ".join(program.signatures)
            raise AnotherModelError(
                f"{path} has no signature {name!r} but {have}", hint=_ANOTHER
            )
        mine, theirs = model.signature, program.signatures[name]
        for kind, ours, other in (
            ("inputs", mine.inputs, theirs.inputs),
            ("outputs", mine.outputs, theirs.outputs),
        ):
            if [*map(_form, ours)] != [*map(_form, other)]:
                raise AnotherModelError(
                    f"{name!r} of {path} has the {kind} {_said(other)}, "
                    f"the model {_said(ours)}",
                    hint=_ANOTHER,
                )


def _form(spec: TensorSpec) -> tuple[str, int, str]:
    """Return what must agree; sizes are compared with the values."""
    return spec.name, len(spec.shape), spec.dtype


def _said(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{s.name}: {describe_tensor(s)}" for s in specs) or "none"


def _buckets(
    program: Program, captured: Mapping[str, Captured]
) -> dict[str, list[Mapping[str, int]]]:
    """Return the sizes that the artifact has executables for, and 0 where it may be."""
    found = {}
    for name in captured.keys() & program.signatures.keys():
        example = captured[name].example_dims()
        sizes = [s for s in program[name].buckets if s.keys() == example.keys()]
        empty = empties(captured[name], program.signatures[name])
        others = [*sizes, *(s for s in empty if s not in sizes)]
        found[name] = [s for s in others if s != example]
    return found


def _built(lowered: Mapping[str, Lowered], stack: ExitStack) -> Path:
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    return compile_signatures(lowered, ()).save(Path(folder) / "parity.tpuexe")
