"""CPU latency of one call: torch eager, torch.compile, ONNX Runtime and the .tpuexe.

    python benchmarks/latency.py NAME FOLDER

One process, rounds interleaved, so that load on the machine meets all alike; the
minimum of the rounds counts. Also writes FOLDER/NAME.npz for the cold-start runs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.model_zoo.zoo import entry
from tpu_export.runtime.program import load

ROUNDS = 15


def contenders(name: str, folder: Path) -> dict[str, Callable[[], object]]:
    model, args, kwargs = entry(name).build()
    program = load(folder / f"{name}.tpuexe", device="cpu")
    arrays = [as_numpy(t) for t in (*args, *(kwargs or {}).values())]
    names = [spec.name for spec in program.signatures["forward"].inputs]
    feed = dict(zip(names, arrays, strict=True))
    np.savez(folder / f"{name}.npz", **feed)
    compiled = torch.compile(model)
    onnx = onnxruntime.InferenceSession(
        folder / f"{name}.onnx", providers=["CPUExecutionProvider"]
    )
    onnx_names = [i.name for i in onnx.get_inputs()]
    onnx_feed = dict(zip(onnx_names, arrays, strict=True))
    return {
        "tpuexe": lambda: program(**feed),
        "torch eager": lambda: model(*args, **(kwargs or {})),
        "torch.compile": lambda: compiled(*args, **(kwargs or {})),
        "onnxruntime": lambda: onnx.run(None, onnx_feed),
    }


def measure(name: str, folder: Path) -> dict[str, float]:
    with torch.no_grad():
        calls = contenders(name, folder)
        for call in calls.values():
            call()
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(ROUNDS):
            for label, call in calls.items():
                start = time.perf_counter()
                call()
                best[label] = min(best[label], time.perf_counter() - start)
    return best


if __name__ == "__main__":
    print("RESULT " + json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
