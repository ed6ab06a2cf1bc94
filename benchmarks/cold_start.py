"""Process start to first answer: .tpuexe without torch, ONNX Runtime, torch eager.

    python benchmarks/cold_start.py NAME FOLDER

Every contender runs in fresh processes, in turn, five times; the minimum counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 5
TPUEXE = """
import sys, numpy as np
import tpu_export.runtime as runtime
from tpu_export.runtime.program import load
program = load(sys.argv[1], device="cpu")
inputs = dict(np.load(sys.argv[2]))
out = program(**inputs)
assert "torch" not in sys.modules
print("COMPILES", program.compilations)
"""
ONNX = """
import sys, numpy as np, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
names = [i.name for i in session.get_inputs()]
out = session.run(None, dict(zip(names, dict(np.load(sys.argv[2])).values())))
"""
EAGER = """
import sys, torch
from tpu_export.model_zoo.zoo import entry
model, args, kwargs = entry(sys.argv[3]).build()
with torch.no_grad():
    model(*args, **kwargs)
"""


def seconds(code: str, *argv: str) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True
    )
    return time.perf_counter() - start, done.stdout


def measure(name: str, folder: Path) -> dict[str, object]:
    inputs = str(folder / f"{name}.npz")
    contenders = {
        "tpuexe": (TPUEXE, str(folder / f"{name}.tpuexe")),
        "onnxruntime": (ONNX, str(folder / f"{name}.onnx")),
        "torch eager": (EAGER, ""),
    }
    best: dict[str, float] = {}
    compiles = ""
    for _ in range(ROUNDS):
        for label, (code, path) in contenders.items():
            took, out = seconds(code, path, inputs, name)
            best[label] = min(best.get(label, took), took)
            compiles = out.strip() if label == "tpuexe" else compiles
    return {"seconds": best, "xla_compiles": int(compiles.split()[-1])}


if __name__ == "__main__":
    print("RESULT " + json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
