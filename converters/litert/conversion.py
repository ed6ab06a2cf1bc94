"""Lowered programs to one .tflite: weights prepared, converted in a worker, tried out."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from tpu_export.converters.litert.engines import Calls
from tpu_export.converters.litert.errors import (
    LiteRtConversionError,
    LiteRtCrashedError,
    LiteRtUnsupportedOpsError,
)
from tpu_export.converters.litert.exchange import Array, write_arrays
from tpu_export.converters.litert.flatbuffer import op_histograms
from tpu_export.converters.litert.model import LiteRtModel, LiteRtReport
from tpu_export.converters.litert.process import run_module
from tpu_export.converters.litert.trial import Candidate, Trial
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.runtime.devices import XLA_CPU_OPTIONS
from tpu_export.runtime.signature import FunctionSpec, Slot
from tpu_export.runtime.stablehlo import portable_callable, static_shapes

_WORKER = "tpu_export.converters.litert.worker"
_REFUSED_DTYPES = {
    "complex64": "LiteRT has no complex arithmetic",
    "complex128": "LiteRT has no complex arithmetic",
    "float64": "LiteRT's kernels have no float64",
    "float8_e4m3fn": "LiteRT has no 8-bit floats",
    "float8_e5m2": "LiteRT has no 8-bit floats",
    "bfloat16": "LiteRT's CPU kernels have no bfloat16; convert the model to float32",
    "float16": "LiteRT's CPU kernels compute in float32; convert the model to float32",
}


def convert(
    programs: Mapping[str, LoweredProgram], *, dims: Mapping[str, int] | None = None
) -> LiteRtModel:
    """Convert lowered signatures to a .tflite, and try it out in both engines.

    Args:
        programs: lowered for target "litert", by signature name.
        dims: a size for every dynamic dimension.

    Raises:
        LiteRtUnloadableError: an engine cannot load or run what came out.
        LiteRtMismatchError: it runs, and computes something else than XLA.
        TpuExportError: as `build` does.
    """
    return build(programs, dims=dims).checked()


def build(
    programs: Mapping[str, LoweredProgram], *, dims: Mapping[str, int] | None = None
) -> Candidate:
    """Convert as `convert` does, and leave the trials to the caller.

    Raises:
        LiteRtUnsupportedOpsError: ops or dtypes that LiteRT cannot hold, all at once.
        LiteRtConversionError: the converter refused; its own words.
        LiteRtCrashedError: the converter died.
    """
    _check_dtypes(programs)
    place = Path(tempfile.mkdtemp(prefix="tpu-export-litert-"))
    try:
        candidate = _converted(programs, dims or {}, place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    weakref.finalize(candidate.model, shutil.rmtree, place, ignore_errors=True)
    return candidate


def _converted(
    programs: Mapping[str, LoweredProgram], dims: Mapping[str, int], place: Path
) -> Candidate:
    start = time.perf_counter()
    trials = [_write_job(place, n, p, dims) for n, p in programs.items()]
    specs = {name: _job_spec(p) for name, p in programs.items()}
    (place / "job.json").write_text(json.dumps(specs))
    status, words = run_module(_WORKER, str(place))
    if status != 0:
        raise _explained(place / "error.json", status, words)
    path = place / "model.tflite"
    report = LiteRtReport(
        size=path.stat().st_size,
        seconds=time.perf_counter() - start,
        ops=op_histograms(path),
    )
    signatures = {name: p.signature for name, p in programs.items()}
    return Candidate(LiteRtModel(path, signatures, report), trials)


def _write_job(
    folder: Path, name: str, program: LoweredProgram, dims: Mapping[str, int]
) -> Trial:
    """Write a signature's static module and its baked weights; run it once on XLA."""
    spec = program.main.spec
    with jax.enable_x64(True):
        function = portable_callable(program.main.module("cpu"), spec, "cpu")
        shapes = static_shapes(spec.arguments, dims)
        module = program.main.module("cpu")
        if any(isinstance(d, str) for s in spec.arguments for d in s.shape):
            static = export.export(jax.jit(function, keep_unused=True))(*shapes)
            module = bytes(static.mlir_module_serialized)
        weights = _leading(program)
        rest = [s for s in spec.arguments if s.kind in ("state", "input")]
        zeros = [np.zeros(s.shape, s.dtype) for s in shapes[len(weights) :]]
        given = [
            as_numpy(program.weights[s.name]) if s.kind == "state" else z
            for s, z in zip(rest, zeros, strict=True)
        ]
        compiled = jax.jit(function, keep_unused=True).lower(*shapes)
        results = compiled.compile(compiler_options=dict(XLA_CPU_OPTIONS))(
            *weights.values(), *given
        )
    (folder / f"{name}.mlirbc").write_bytes(module)
    write_arrays(folder / name, weights)
    return Trial(
        Calls(name, [dict(zip(_names(rest, result=False), given, strict=True))]),
        dict(
            zip(
                _names(spec.results, result=True), map(np.asarray, results), strict=True
            )
        ),
    )


def _leading(program: LoweredProgram) -> dict[str, Array]:
    """Return main's weight and prepared arguments, by a key for each."""
    prepared: dict[str, Any] = {}
    prepare = program.prepare
    if prepare is not None:
        spec = prepare.spec
        function = portable_callable(prepare.module("cpu"), spec, "cpu")
        lowered = jax.jit(function, keep_unused=True).lower(
            *static_shapes(spec.arguments, {})
        )
        arrays = [as_numpy(program.weights[s.name]) for s in spec.arguments]
        results = lowered.compile(compiler_options=dict(XLA_CPU_OPTIONS))(*arrays)
        prepared = dict(zip((s.name for s in spec.results), results, strict=True))
    return {
        f"{s.kind}/{s.name}": np.asarray(prepared[s.name])
        if s.kind == "prepared"
        else as_numpy(program.weights[s.name])
        for s in _leading_slots(program.main.spec)
    }


def _leading_slots(spec: FunctionSpec) -> list[Slot]:
    return [s for s in spec.arguments if s.kind in ("weight", "prepared")]


def _job_spec(program: LoweredProgram) -> dict[str, Any]:
    spec = program.main.spec

    def plain(slots: Iterable[Slot]) -> list[dict[str, str]]:
        return [{"kind": s.kind, "name": s.name} for s in slots]

    return {
        "weights": [f"{s.kind}/{s.name}" for s in _leading_slots(spec)],
        "arguments": plain(spec.arguments),
        "results": plain(spec.results),
    }


def _names(slots: Iterable[Slot], *, result: bool) -> list[str]:
    """Return how LiteRT names slots: state, and inputs that come back, are qualified."""
    return [
        f"{s.kind}.{s.name}"
        if s.kind == "state" or (result and s.kind == "input")
        else s.name
        for s in slots
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


def _explained(path: Path, status: int, words: str) -> Exception:
    if not path.exists():
        return LiteRtCrashedError(
            f"litert-converter died with status {status}: {words}",
            hint="export for cloud-tpu only, and report the model",
        )
    error = json.loads(path.read_text())
    if "refused" in error:
        return LiteRtUnsupportedOpsError(error["refused"])
    detail = " ".join(str(error["failed"]).split())[:600]
    return LiteRtConversionError(
        f"litert-converter refused the program: {detail}",
        hint="the message names the op; give it a rule for LiteRT with "
        '@tpu_export.lowers(op, target="litert")',
    )
