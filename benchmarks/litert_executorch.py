"""ExecuTorch with XNNPACK next to our float file; runs in ExecuTorch's environment.

    litert_executorch.py FOLDER

Takes model.pt2, inputs and ours-float.tflite from the folder; prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from litert_timing import Runner, timed


def measure(folder: Path) -> dict[str, Any]:
    exported = torch.export.load(folder / "model.pt2")
    start = time.monotonic()
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    path = folder / "model.pte"
    path.write_bytes(lowered.to_executorch().buffer)
    seconds = time.monotonic() - start
    given = dict(np.load(folder / "inputs-0.npz"))
    method = Runtime.get().load_program(path).load_method("forward")
    tensors = [torch.from_numpy(a) for a in given.values()]
    names = json.loads((folder / "sides.json").read_text())["ours"]["inputs"]
    ours = folder / "ours-float.tflite"
    runners: list[Runner] = [
        litert_files.interpreter(ours, litert_files.feed(ours, names, given)),
        lambda: method.execute(tensors),
    ]
    result = method.execute(tensors)[0].double().numpy()
    exact = next(iter(np.load(folder / "expected-0.npz").values()))
    noise = float(np.mean((result - exact) ** 2))
    ms = timed(dict(zip(("ours", "executorch"), runners, strict=True)))
    snr = 10 * float(np.log10(float(np.mean(exact**2)) / max(noise, 1e-30)))
    return {"convert": seconds, "bytes": path.stat().st_size, "snr": snr, "ms": ms}


if __name__ == "__main__":
    print("RESULT " + json.dumps(measure(Path(sys.argv[1]))))
