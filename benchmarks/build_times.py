"""Time and memory of one export, printed as one JSON line. Run in a process of its own.

    python benchmarks/build_times.py NAME FOLDER

leaves FOLDER/NAME.tpuexe and FOLDER/NAME.onnx for the other measurements.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ["TPU_EXPORT_CACHE"] = tempfile.mkdtemp()  # nothing comes from the cache

import torch

from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import compile_signatures, lower
from tpu_export.model_zoo.zoo import entry


class PeakMemory:
    """The largest resident set of this process while the block runs, in bytes."""

    def __enter__(self) -> PeakMemory:
        self.start = self.peak = _resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.peak = max(self.peak, _resident())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        return self.peak - self.start


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure(name: str, folder: Path) -> dict[str, object]:
    model, args, kwargs = entry(name).build()
    weights = sum(
        t.numel() * t.element_size() for t in {*model.parameters(), *model.buffers()}
    )
    times: dict[str, float] = {}

    def timed(stage: str) -> None:
        nonlocal mark
        now = time.perf_counter()
        times[stage] = now - mark
        mark = now

    warm_up()
    with PeakMemory() as memory:
        mark = time.perf_counter()
        captured = capture(model, args, kwargs)
        timed("torch.export")
        lowered = lower(captured)
        timed("lower")
        compiled = compile_signatures({captured.name: lowered}, ("v5e-1", "v6e-1"))
        timed("compile v5e + v6e + cpu")
        artifact = compiled.save(folder / f"{name}.tpuexe")
        timed("write")
    targets = compiled.targets[captured.name]
    executables = sum(len(t.main) + len(t.prepare or b"") for t in targets)
    return {
        "times": times,
        "memory_over_weights": memory.growth / weights,
        "weights": weights,
        "executables": executables,
        "artifact": artifact.stat().st_size,
        "artifact_over_weights_and_executables": artifact.stat().st_size
        / (weights + executables),
        "estimates": {
            t.topology: t.report.to_json() for t in targets if t.report is not None
        },
        "onnx_export": export_onnx(model, args, kwargs, folder / f"{name}.onnx"),
    }


def warm_up() -> None:
    """Pay the imports and first-call costs of torch.export and JAX before timing."""
    linear = torch.nn.Linear(4, 4).eval()
    lower(capture(linear, (torch.ones(2, 4),)))


def export_onnx(model: torch.nn.Module, args: tuple, kwargs: dict, path: Path) -> float:
    start = time.perf_counter()
    torch.onnx.export(
        model, args, path, kwargs=kwargs or {}, dynamo=True, verbose=False
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    result = measure(name, folder)
    print("RESULT " + json.dumps(result))
