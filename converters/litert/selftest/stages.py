"""One stage of every entry: ``python -m …selftest.stages STAGE DIRECTORY``.

Each entry is a folder; its stage runs in a fork, which may die. STAGE is "convert" or the
name of an engine. Writes STAGE.json in each folder: the status, and the words of an error.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.engine import ENGINES, Loaded, as_buffer, interpreter
from tpu_export.converters.litert.exchange import Array, map_arrays, write_arrays
from tpu_export.converters.litert.process import meaningful

_SECONDS = 20
_SIGNATURE = "main"
# Imported once, before the forks.
_NEEDED = {
    "convert": "tpu_export.converters.litert.adapter",
    "interpreter": "ai_edge_litert.interpreter",
    "compiled": "ai_edge_litert.compiled_model",
}


def convert(folder: Path, spec: Mapping[str, Any]) -> None:
    """Write the .tflite of a folder's module, as it is."""
    from tpu_export.converters.litert.adapter import Conversion, SignatureJob

    module = (folder / "module.mlirbc").read_bytes()
    conversion = Conversion()
    job = SignatureJob(_SIGNATURE, module, [], spec["inputs"], spec["outputs"])
    conversion.add(job, conversion.parse(module))
    conversion.convert(folder / "model.tflite", copies=spec["copies"])


def run(engine: str, folder: Path, spec: Mapping[str, Any]) -> None:
    """Make the calls of a folder, in one start of an engine."""
    load = ENGINES[engine]
    if spec["batch"]:
        load = {"interpreter": interpreter, "compiled": resized}[engine]
    loaded = load(folder / "model.tflite")
    for call in range(spec["calls"]):
        outputs = loaded(_SIGNATURE, map_arrays(folder / f"inputs-{call}"))
        write_arrays(folder / f"{engine}-{call}", outputs)


def resized(path: Path) -> Loaded:
    """Load a file in CompiledModel, whose inputs take the size of each call."""
    from ai_edge_litert.compiled_model import CompiledModel

    model = CompiledModel.from_file(str(path))

    def call(signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        for name, array in inputs.items():
            model.resize_input_tensor_by_name(signature, name, array.shape)
        feeds = {n: model.create_input_buffer_by_name(signature, n) for n in inputs}
        for name, buffer in feeds.items():
            buffer.write(as_buffer(np.ascontiguousarray(inputs[name])))
        names = model.get_signature_list()[signature]["outputs"]
        results = {n: model.create_output_buffer_by_name(signature, n) for n in names}
        model.run_by_name(signature, feeds, results)
        return {name: _read(buffer) for name, buffer in results.items()}

    return call


def _read(buffer: Any) -> Array:
    detail = buffer.get_tensor_details()
    shape = tuple(int(d) for d in detail["shape"])
    flat: Array = np.asarray(buffer.read(int(np.prod(shape)), np.float32))
    return flat.reshape(shape)


def forked(body: Callable[[], None], words: Path) -> tuple[int, str]:
    """Run something in a fork; returns its exit status and what it said last."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.dup2(os.open(words, os.O_CREAT | os.O_WRONLY), 2)
            signal.alarm(_SECONDS)
            body()
            status = 0
        except Exception as error:  # any answer of the bindings is an outcome
            text = " ".join(f"{type(error).__name__}: {error}".split())
            os.write(2, f"\n{text}\n".encode())
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = words.read_text(errors="replace") if words.exists() else ""
    return status, meaningful(said.splitlines(), 2)


def main(argv: Sequence[str]) -> int:
    """Run a stage of every folder that has come so far."""
    stage, root = argv[1], Path(argv[2])
    importlib.import_module(_NEEDED[stage])
    for folder in sorted(p for p in root.iterdir() if p.is_dir()):
        if stage != "convert" and not (folder / "model.tflite").exists():
            continue
        status, words = forked(partial(_stage, stage, folder), folder / "words")
        (folder / "words").unlink(missing_ok=True)
        found = {"status": status, "words": words[:300] if status else ""}
        (folder / f"{stage}.json").write_text(json.dumps(found))
    return 0


def _stage(stage: str, folder: Path) -> None:
    spec = json.loads((folder / "job.json").read_text())
    if stage == "convert":
        convert(folder, spec)
    else:
        run(stage, folder, spec)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
