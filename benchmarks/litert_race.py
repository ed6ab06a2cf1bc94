"""Latencies and errors of the files in a folder: ``litert_race.py FOLDER`` prints one JSON line.

One process; the contenders of a round take turns. Errors are against torch eager in float64.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import litert_files
import numpy as np
import onnxruntime
from litert_timing import Runner, timed

Arrays: TypeAlias = Mapping[str, np.ndarray]


def measure(folder: Path) -> dict[str, Any]:
    sides = json.loads((folder / "sides.json").read_text())
    numbers = {
        name: sorted(folder.glob(f"{name}-*.npz")) for name in ("inputs", "expected")
    }
    inputs = [dict(np.load(path)) for path in numbers["inputs"]]
    expected = [dict(np.load(path)) for path in numbers["expected"]]
    found: dict[str, Any] = {}
    for recipe in ("float", *json.loads((folder / "recipes.json").read_text())):
        runners: dict[str, Runner] = {}
        result: dict[str, Any] = {}
        for side, names in sides.items():
            path = folder / f"{side}-{recipe}.tflite"
            if not path.exists():
                continue
            try:
                result[side] = {
                    "bytes": path.stat().st_size,
                    **errors(path, names, inputs, expected),
                }
                feed = litert_files.feed(path, names["inputs"], inputs[0])
                runners[f"{side} interpreter"] = litert_files.interpreter(path, feed)
                runners[f"{side} compiled"] = litert_files.compiled(path, feed)
            except (RuntimeError, ValueError) as error:
                result[side] = {"failed": " ".join(str(error).split())[:200]}
        if recipe == "float":
            runners |= onnx(folder / "model.onnx", inputs[0])
        result["ms"] = timed(runners)
        found[recipe] = result
    return found


def onnx(path: Path, inputs: Arrays) -> dict[str, Runner]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    feed = dict(
        zip((i.name for i in session.get_inputs()), inputs.values(), strict=True)
    )
    return {"onnxruntime": lambda: session.run(None, feed)}


def errors(
    path: Path, names: Any, inputs: list[Arrays], expected: list[Arrays]
) -> dict[str, float]:
    """Return SNR in decibels, and the largest |error| / (|expected| + rms), over all calls."""
    noise = signal = worst = 0.0
    for given, wanted in zip(inputs, expected, strict=True):
        got = litert_files.outputs(path, names, given, list(wanted))
        for actual, exact in zip(got, wanted.values(), strict=True):
            gap = np.abs(actual.astype(np.float64) - exact)
            rms = float(np.sqrt(np.mean(exact.astype(np.float64) ** 2)))
            worst = max(worst, float(np.max(gap / (np.abs(exact) + rms + 1e-30))))
            noise += float(np.sum(gap**2)) / gap.size
            signal += rms**2
    return {"snr": 10 * float(np.log10(signal / max(noise, 1e-30))), "error": worst}


if __name__ == "__main__":
    print("RESULT " + json.dumps(measure(Path(sys.argv[1]))))
