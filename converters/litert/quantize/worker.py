"""Quantize one job directory: ``python -m tpu_export.converters.litert.quantize.worker DIRECTORY``.

A process of its own: the quantizer holds the file several times, and runs an interpreter.
Reads job.json, the file that it names and the calls of data/SIGNATURE/NUMBER; writes
model.tflite and done.json, or error.json.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ai_edge_quantizer import quantizer

from tpu_export.converters.litert.exchange import map_arrays
from tpu_export.converters.litert.graph import pack, read_graph, whole_fork
from tpu_export.converters.litert.quantize.masks import clamp_masks

_EVERY_OP = "*"


def main(argv: Sequence[str]) -> int:
    """Quantize the job in a directory."""
    folder = Path(argv[1])
    job = json.loads((folder / "job.json").read_text())
    plain = Path(job["plain"])
    clamped: list[str] = []
    if job["static"]:
        plain, clamped = _without_far_masks(plain, job["signatures"], folder)
    try:
        work = quantizer.Quantizer(str(plain))
        work.load_quantization_recipe(_configs(job))
        qualities = work.calibrate(_data(folder, job)) if job["static"] else None
        result = work.quantize(qualities, enable_progress_report=False)
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        message = f"{type(error).__name__}: {error}"
        (folder / "error.json").write_text(json.dumps({"failed": message}))
        return 1
    (folder / "model.tflite").write_bytes(result.quantized_model)
    (folder / "done.json").write_text(json.dumps({"clamped": clamped}))
    return 0


def _without_far_masks(
    plain: Path, signatures: Sequence[str], folder: Path
) -> tuple[Path, list[str]]:
    found: list[str] = []
    for name in signatures:
        graph = whole_fork(read_graph(plain, name))
        clamped = clamp_masks(graph)
        if clamped:
            plain = folder / f"clamped-{len(found)}.tflite"
            pack(graph, plain)
            found += map(str, clamped)
    return plain, found


def _configs(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one config for everything, and one for the ops that have another."""
    base, *others = job["configs"]
    every = [{"regex": ".*", "operation": _EVERY_OP, **base}]
    for side in job["borders"]:  # inputs and outputs stay as the model has them
        every.append({"regex": ".*", "operation": side, **_KEPT})
    for config in others:
        scopes = "|".join(map(re.escape, config["scopes"]))
        rest = {key: value for key, value in config.items() if key != "scopes"}
        every.append({"regex": f"^(?:{scopes})$", "operation": _EVERY_OP, **rest})
    return every


_KEPT = {"algorithm_key": "no_quantize", "op_config": {}}


def _data(folder: Path, job: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [map_arrays(folder / "data" / name / str(i)) for i in range(count)]
        for name, count in job["calls"].items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv))
