"""Quantize one job directory: ``python -m tpu_export.converters.litert.quantize_worker DIRECTORY``.

A process of its own: the quantizer holds the file several times, and runs an interpreter.
Reads job.json, the file that it names and the calls of data/SIGNATURE/NUMBER; writes
model.tflite, or error.json.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ai_edge_quantizer import quantizer
from ai_edge_quantizer.calibrator import CalibrationMode, Calibrator
from ai_edge_quantizer.recipe_manager import RecipeManager
from ai_edge_quantizer.utils.qsv_utils import min_max_update

from tpu_export.converters.litert.exchange import map_arrays


def main(argv: Sequence[str]) -> int:
    """Quantize the job in a directory."""
    folder = Path(argv[1])
    job = json.loads((folder / "job.json").read_text())
    try:
        work = quantizer.Quantizer(job["plain"])
        configs = _configs(job)
        work.load_quantization_recipe(configs)
        ranges = _ranges(job, configs, _data(folder, job)) if job["static"] else None
        result = work.quantize(ranges, enable_progress_report=False)
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        message = f"{type(error).__name__}: {error}"
        (folder / "error.json").write_text(json.dumps({"failed": message}))
        return 1
    (folder / "model.tflite").write_bytes(result.quantized_model)
    return 0


def _ranges(
    job: Mapping[str, Any], configs: Sequence[Any], data: Mapping[str, Any]
) -> Any:
    """Return the least and the greatest value of each activation, of all calls.

    The quantizer's own is a moving average: each call after the first weighs 0.05.
    """
    manager = RecipeManager()
    manager.load_quantization_recipe(configs)
    found = Calibrator(
        job["plain"],
        mode=CalibrationMode.CALIBRATION_PRESERVE_ALL_TENSORS,
        qsv_update_func=min_max_update,
    )
    found.calibrate(data, manager)
    return found.get_model_qsvs()


def _configs(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the configs of everything, then those of the ops that have others."""
    every = []
    for config in job["configs"]:
        scopes = "|".join(map(re.escape, config.pop("scopes", ())))
        every.append({"regex": f"^(?:{scopes})$" if scopes else ".*", **config})
    # Last, with a regex of its own: an output has the name of the op that makes it, and the
    # last regex that fits a name counts.
    for side in ("INPUT", "OUTPUT"):
        every.append({"regex": "^.*$", **job["border"], "operation": side})
    return every


def _data(folder: Path, job: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [map_arrays(folder / "data" / name / str(i)) for i in range(count)]
        for name, count in job["calls"].items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv))
