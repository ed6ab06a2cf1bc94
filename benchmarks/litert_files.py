"""A .tflite of either side as something to call, with all of this host's threads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

THREADS = os.cpu_count() or 1


def _runner(path: Path) -> Any:
    engine = Interpreter(model_path=str(path), num_threads=THREADS)
    return engine.get_signature_runner(next(iter(engine.get_signature_list())))


def feed(
    path: Path, names: Sequence[str] | None, given: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return inputs by a file's names: `names` in order, or args_0 … and keywords."""
    keys = names or [f"args_{n}" if n.isdigit() else n for n in given]
    return cast(path, dict(zip(keys, given.values(), strict=True)))


def cast(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return inputs in the dtypes that a file takes: litert-torch narrows int64."""
    details = _runner(path).get_input_details()
    return {
        n: np.ascontiguousarray(array.astype(details[n]["dtype"]))
        for n, array in inputs.items()
    }


def outputs(
    path: Path, names: Any, given: Mapping[str, np.ndarray], wanted: Sequence[str]
) -> list[np.ndarray]:
    """Return a call's results in the order of the model's."""
    runner = _runner(path)
    found = runner(**feed(path, names["inputs"], given))
    order = names["outputs"] or [n if n in found else f"output_{n}" for n in wanted]
    if not set(order) <= set(found):
        order = sorted(found, key=lambda n: [int(d) for d in re.findall(r"\d+", n)])
    return [found[n] for n in order]


def interpreter(path: Path, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
    runner = _runner(path)
    return lambda: runner(**inputs)


def compiled(path: Path, inputs: Mapping[str, np.ndarray]) -> Callable[[], object]:
    """Load a file in CompiledModel on the CPU; its buffers are filled once."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.cpu_options import CpuOptions
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import Options

    options = Options(
        hardware_accelerators=HardwareAccelerator.CPU,
        cpu_options=CpuOptions(num_threads=THREADS),
    )
    model = CompiledModel.from_file(str(path), options=options)
    (key, *_) = model.get_signature_list()
    names = model.get_signature_by_index(model.get_signature_index(key))
    given = {n: model.create_input_buffer_by_name(key, n) for n in names["inputs"]}
    results = {n: model.create_output_buffer_by_name(key, n) for n in names["outputs"]}
    for name, buffer in given.items():
        array = inputs[name]
        if array.dtype == np.int64:  # unknown to the Python buffers
            array = array.reshape(-1).view(np.int32)
        buffer.write(array)
    return lambda: model.run_by_name(key, given, results)
