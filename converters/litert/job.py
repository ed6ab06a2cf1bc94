"""Programs to a .tflite by way of the worker: without their large weights where that can be."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.errors import (
    LiteRtConversionError,
    LiteRtCrashedError,
)
from tpu_export.converters.litert.exchange import Array, map_arrays, write_arrays
from tpu_export.converters.litert.process import run_module
from tpu_export.converters.litert.standins import (
    StandIn,
    fill,
    value,
    with_stand_ins,
)
from tpu_export.converters.litert.static import StaticProgram
from tpu_export.runtime.signature import FunctionSpec, Slot

_WORKER = "tpu_export.converters.litert.worker"
log = logging.getLogger(__name__)


def converted(programs: Mapping[str, StaticProgram], place: Path) -> Path:
    """Convert in a worker process; returns the .tflite in the folder `place`.

    Beside it lies integers.json, what became of quantizations in the model.

    The worker gets stand-ins for large weights, and their values are written into what it made. A
    weight whose value an op of its own needs is given to it in a second run, and all of them
    where the first died: the file is then the same, and takes more memory to make.

    Raises:
        LiteRtConversionError: the converter refused; its own words.
        LiteRtCrashedError: the converter died.
    """
    arrays = {_key(a): a for p in programs.values() for a in p.weights.values()}
    stand_ins = with_stand_ins(arrays)
    while True:
        folder = place / f"job-{len(stand_ins)}"
        _write(folder, programs, arrays, stand_ins)
        status, words = run_module(_WORKER, str(folder))
        if status == 0:
            return _filled(folder, arrays, place / "model.tflite")
        error = _error(folder)
        if not stand_ins:
            raise _explained(error.get("failed"), status, words)
        needed = error.get("needed", list(stand_ins))
        why = error.get("op") or error.get("failed") or f"status {status}: {words}"
        log.info(
            "%d of %d weights go through the converter: %s",
            len(needed),
            len(arrays),
            " ".join(why.split())[:300],
        )
        stand_ins = {k: s for k, s in stand_ins.items() if k not in needed}
        shutil.rmtree(folder)


def _write(
    folder: Path,
    programs: Mapping[str, StaticProgram],
    arrays: Mapping[str, Array],
    stand_ins: Mapping[str, StandIn],
) -> None:
    write_arrays(
        folder / "weights", {k: a for k, a in arrays.items() if k not in stand_ins}
    )
    signatures = {}
    for name, program in programs.items():
        (folder / f"{name}.mlirbc").write_bytes(program.module)
        signatures[name] = _job_spec(program.spec) | {
            "weights": [_key(array) for array in program.weights.values()]
        }
    job = {
        "signatures": signatures,
        "stand-ins": {k: (s.dtype.name, s.shape) for k, s in stand_ins.items()},
    }
    (folder / "job.json").write_text(json.dumps(job))


def _filled(folder: Path, arrays: Mapping[str, Array], path: Path) -> Path:
    expressions = json.loads((folder / "markers.json").read_text())
    constants = map_arrays(folder / "constants")
    (folder / "model.tflite").rename(path)
    (folder / "integers.json").rename(path.with_name("integers.json"))
    if expressions:
        fill(path, len(expressions), lambda i: value(expressions[i], arrays, constants))
    shutil.rmtree(folder)
    return path


def _error(folder: Path) -> dict[str, Any]:
    path = folder / "error.json"
    return json.loads(path.read_text()) if path.exists() else {}


def _key(array: Array) -> str:
    """Return the same text for the same memory: signatures share their weights."""
    return f"{array.ctypes.data}:{array.dtype}:{array.shape}:{array.strides}"


def _job_spec(spec: FunctionSpec) -> dict[str, Any]:
    def plain(slots: Iterable[Slot]) -> list[dict[str, str]]:
        return [{"kind": s.kind, "name": s.name} for s in slots]

    return {
        "arguments": plain(spec.arguments),
        "results": plain(spec.results),
    }


def _explained(failed: str | None, status: int, words: str) -> Exception:
    if failed is None:
        return LiteRtCrashedError(
            f"litert-converter died with status {status}: {words}",
            hint="export for cloud-tpu only, and report the model",
        )
    return LiteRtConversionError(
        f"litert-converter refused the program: {' '.join(failed.split())[:600]}",
        hint="the message names the op; give it a rule for LiteRT with "
        '@tpu_export.lowers(op, target="litert")',
    )
