"""Run a .tflite: ``python -m tpu_export.converters.litert.engine FILE ENGINE DIRECTORY``.

A process of its own, because a file that an engine cannot take may crash it. Reads
SIGNATURE and inputs.safetensors of the directory, writes outputs.safetensors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.runtime.tensors import Array, map_file, numpy_dtype, write_file


def interpreter(
    path: Path, signature: str, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Run a signature in the Interpreter (with XNNPACK, as it comes)."""
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(model_path=str(path))
    runner = engine.get_signature_runner(signature)
    return dict(runner(**inputs))


def compiled(
    path: Path, signature: str, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Run a signature in the CompiledModel API on the CPU."""
    from ai_edge_litert.compiled_model import CompiledModel

    model = CompiledModel.from_file(str(path))
    index = model.get_signature_index(signature)
    names = model.get_signature_by_index(index)
    feeds = {
        name: model.create_input_buffer_by_name(signature, name)
        for name in names["inputs"]
    }
    results = {
        name: model.create_output_buffer_by_name(signature, name)
        for name in names["outputs"]
    }
    for name, buffer in feeds.items():
        buffer.write(_carried(np.ascontiguousarray(inputs[name])))
    model.run_by_name(signature, feeds, results)
    details = model.get_output_tensor_details(signature)
    return {name: _read(buffer, details[name]) for name, buffer in results.items()}


def _read(buffer: Any, detail: Mapping[str, Any]) -> Array:
    shape = tuple(int(d) for d in detail["shape"])
    dtype = numpy_dtype(np.dtype(detail["dtype"]).name)
    carried = _carried(np.empty(shape, dtype))
    flat = np.asarray(buffer.read(carried.size, carried.dtype.type))
    return flat.reshape(-1).view(dtype).reshape(shape)


def _carried(array: Array) -> Array:
    """Return values as a dtype that the Python buffers take: they know no int64."""
    if array.dtype.name in _BUFFER_DTYPES:
        return array
    return array.reshape(-1).view(np.int32 if array.itemsize >= 4 else np.uint8)


_BUFFER_DTYPES = ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool")
ENGINES = {"interpreter": interpreter, "compiled": compiled}


def main(argv: Sequence[str]) -> int:
    """Run one call described by a directory."""
    path, engine, folder = Path(argv[1]), argv[2], Path(argv[3])
    signature = json.loads((folder / "call.json").read_text())["signature"]
    inputs = map_file(folder / "inputs.safetensors")
    outputs = ENGINES[engine](path, signature, inputs)
    write_file(folder / "outputs.safetensors", outputs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
