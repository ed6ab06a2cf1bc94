"""Run a .tflite: ``python -m tpu_export.converters.litert.engine FILE ENGINE DIRECTORY``.

A process of its own, because a file that an engine cannot take may crash it; it starts once
for all calls of a request. Reads request.json and the inputs of the directory, writes the
outputs; `engines.run_calls` is the other end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tpu_export.converters.litert.contents import read_contents
from tpu_export.converters.litert.exchange import Array, map_arrays, write_arrays

# Runs a signature, by name, of a file that is loaded already.
Loaded: TypeAlias = Callable[[str, Mapping[str, Array]], dict[str, Array]]


def interpreter(path: Path) -> Loaded:
    """Load a file in the Interpreter (with XNNPACK, as it comes)."""
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(model_path=str(path))

    def run(signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return dict(engine.get_signature_runner(signature)(**inputs))

    return run


def compiled(path: Path) -> Loaded:
    """Load a file in the CompiledModel API on the CPU."""
    from ai_edge_litert.compiled_model import CompiledModel

    model = CompiledModel.from_file(str(path))
    resized = _resized(path)

    def run(signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        index = model.get_signature_index(signature)
        names = model.get_signature_by_index(index)
        like = resized[signature](signature, inputs) if signature in resized else {}
        if like:
            for name in names["inputs"]:
                shape = list(inputs[name].shape)
                model.resize_input_tensor_by_name(signature, name, shape, strict=False)
        feeds = {
            name: model.create_input_buffer_by_name(signature, name)
            for name in names["inputs"]
        }
        results = {
            name: _own_buffer(np.empty_like(like[name]))
            if like
            else model.create_output_buffer_by_name(signature, name)
            for name in names["outputs"]
        }
        for name, buffer in feeds.items():
            buffer.write(as_buffer(np.ascontiguousarray(inputs[name])))
        model.run_by_name(signature, feeds, results)
        return {name: _read(buffer, like.get(name)) for name, buffer in results.items()}

    return run


def _resized(path: Path) -> dict[str, Loaded]:
    """Return, for signatures with sizes that are not fixed, what tells those of the outputs.

    CompiledModel makes buffers of the sizes that outputs had in the call before, and writes
    beyond them. The Interpreter knows those of this call.
    """
    signatures = read_contents(path).signatures.items()
    found = [n for n, s in signatures if any(d < 0 for i in s.inputs for d in i.shape)]
    return dict.fromkeys(found, interpreter(path)) if found else {}


def _own_buffer(array: Array) -> Any:
    from ai_edge_litert.tensor_buffer import TensorBuffer

    return TensorBuffer.create_from_host_memory(as_buffer(array).reshape(-1))


def _read(buffer: Any, like: Array | None) -> Array:
    # The model's own details are refused where a branch or a constant gives the result.
    detail: Mapping[str, Any] = buffer.get_tensor_details()
    shape = tuple(int(d) for d in detail["shape"]) if like is None else like.shape
    dtype: np.dtype[Any] = np.dtype(detail["dtype"]) if like is None else like.dtype
    held = as_buffer(np.empty(shape, dtype))
    flat: Array = np.asarray(buffer.read(held.size, held.dtype.type))
    return flat.reshape(-1).view(dtype).reshape(shape)


def as_buffer(array: Array) -> Array:
    """Return values as a dtype that the Python buffers take: they know no int64."""
    if array.dtype.name in _BUFFER_DTYPES:
        return array
    return array.reshape(-1).view(np.int32 if array.itemsize >= 4 else np.uint8)


_BUFFER_DTYPES = ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "bool")
ENGINES = {"interpreter": interpreter, "compiled": compiled}


def answer(run: Loaded, folder: Path) -> None:
    """Make the calls of a directory's request, handing on what a sequence carries."""
    for i, sequence in enumerate(json.loads((folder / "request.json").read_text())):
        carried: dict[str, Array] = {}
        for j in range(sequence["calls"]):
            inputs = {**map_arrays(folder / f"inputs-{i}-{j}"), **carried}
            outputs = run(sequence["signature"], inputs)
            write_arrays(folder / f"outputs-{i}-{j}", outputs)
            carried = {name: outputs[name] for name in sequence["carried"]}


def main(argv: Sequence[str]) -> int:
    """Answer the request in a directory."""
    path, engine, folder = Path(argv[1]), argv[2], Path(argv[3])
    answer(ENGINES[engine](path), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
