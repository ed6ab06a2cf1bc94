"""Lowered programs to one .tflite: weights prepared, converted in a worker, tried out."""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from tpu_export.converters.litert.errors import (
    LiteRtUnsupportedOpsError,
)
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.flatbuffer import op_histograms
from tpu_export.converters.litert.integer_ops import read_integers
from tpu_export.converters.litert.job import converted
from tpu_export.converters.litert.model import LiteRtModel, LiteRtReport
from tpu_export.converters.litert.scan import refused
from tpu_export.converters.litert.sizes import at_sizes, family
from tpu_export.converters.litert.static import (
    StaticProgram,
    static_program,
    weights_of,
)
from tpu_export.converters.litert.symbolic import converted_symbolic
from tpu_export.converters.litert.transposes import transposes
from tpu_export.converters.litert.trial import Candidate, answered
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.runtime.stablehlo import parsed

_REFUSED_DTYPES = {
    "complex64": "LiteRT has no complex arithmetic",
    "complex128": "LiteRT has no complex arithmetic",
    "float64": "LiteRT's kernels have no float64",
    "float8_e4m3fn": "LiteRT has no 8-bit floats",
    "float8_e5m2": "LiteRT has no 8-bit floats",
    "bfloat16": "LiteRT takes and gives none; cast in forward(), from and to float32",
    "float16": "LiteRT takes and gives none; cast in forward(), from and to float32",
}


def convert(
    programs: Mapping[str, LoweredProgram],
    *,
    dims: Mapping[str, Mapping[str, int]] | None = None,
    inputs: Mapping[str, Mapping[str, Array]] | None = None,
) -> LiteRtModel:
    """Convert lowered signatures to a .tflite, and try it out in both engines.

    Args:
        programs: lowered for target "litert", by signature name.
        dims: a size for every dynamic dimension, by signature.
        inputs: for the trial of each signature; by default drawn by dtype (`draw`).

    Raises:
        LiteRtUnloadableError: an engine cannot load or run what came out.
        LiteRtMismatchError: it runs, and computes something else than XLA.
        TpuExportError: as `build` does.
    """
    return build(programs, dims=dims, inputs=inputs).checked()


def build(
    programs: Mapping[str, LoweredProgram],
    *,
    dims: Mapping[str, Mapping[str, int]] | None = None,
    inputs: Mapping[str, Mapping[str, Array]] | None = None,
    symbolic: bool = False,
) -> Candidate:
    """Convert as `convert` does, and leave the trials to the caller.

    Args:
        programs, dims, inputs: as of `convert`.
        symbolic: programs are signatures at several sizes (`sized_name`); the file has one
            of each, for any size. There is a trial for each size still.

    Raises:
        SymbolicSizeError: an op of the file holds a size.
        LiteRtUnsupportedOpsError: ops or dtypes that LiteRT cannot hold, all at once.
        LiteRtConversionError: the converter refused; its own words.
        LiteRtCrashedError: the converter died.
    """
    _check_dtypes(programs)
    place = Path(tempfile.mkdtemp(prefix="tpu-export-litert-"))
    try:
        start = time.perf_counter()
        sizes = dims or {}
        static = _static(programs, sizes)
        _scan(static.values())
        path = (
            converted_symbolic(static, sizes, place)
            if symbolic
            else converted(static, place)
        )
        given = list(programs.values())[: 1 if symbolic else None]
        report = LiteRtReport(
            size=path.stat().st_size,
            seconds=time.perf_counter() - start,
            ops=op_histograms(path),
            transposes=transposes(path),
            integers=read_integers(path, given),
        )
        owners = {n: family(n, sizes.get(n, {})) if symbolic else n for n in programs}
        trials = [
            answered(
                own, static[name], programs[name].weights, (inputs or {}).get(name)
            )
            for name, own in owners.items()
        ]
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    kept = {} if symbolic else sizes
    signatures = {
        own: at_sizes(replace(programs[name].signature, name=own), kept.get(name, {}))
        for name, own in owners.items()
    }
    model = LiteRtModel(path, signatures, report, kept)
    weakref.finalize(model, shutil.rmtree, place, ignore_errors=True)
    return Candidate(model, trials)


def _static(
    programs: Mapping[str, LoweredProgram], sizes: Mapping[str, Mapping[str, int]]
) -> dict[str, StaticProgram]:
    """Return programs at their sizes; one at several sizes has its weights once."""
    weights = {id(p.main): weights_of(p) for p in programs.values()}
    return {
        name: static_program(p, sizes.get(name, {}), weights[id(p.main)])
        for name, p in programs.items()
    }


def _scan(programs: Collection[StaticProgram]) -> None:
    problems = [line for p in programs for line in _empty(p)]
    problems += [line for p in programs for line in refused(parsed(p.module))]
    if problems:
        raise LiteRtUnsupportedOpsError(list(dict.fromkeys(problems)))


def _empty(program: StaticProgram) -> list[str]:
    return [
        f"{slot.kind} {slot.name!r} has no elements: CompiledModel makes no buffer for it"
        for slot in program.spec.arguments
        if slot.kind in ("state", "input") and 0 in slot.shape
    ]


def _check_dtypes(programs: Mapping[str, LoweredProgram]) -> None:
    problems = {
        f"{slot.kind} {slot.name!r} is {slot.dtype}: {_REFUSED_DTYPES[slot.dtype]}"
        for program in programs.values()
        for slot in (*program.main.spec.arguments, *program.main.spec.results)
        if slot.dtype in _REFUSED_DTYPES
    }
    if problems:
        raise LiteRtUnsupportedOpsError(sorted(problems))
