"""An entry as a folder that the stages take, and what XLA:CPU makes of its calls."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from tpu_export.converters.litert.exchange import Array, write_arrays
from tpu_export.converters.litert.selftest.entry import Entry
from tpu_export.runtime.devices import XLA_CPU_OPTIONS


def prepare(entry: Entry, folder: Path) -> list[list[Array]]:
    """Write an entry to a new folder and return the right results of each call."""
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # casts that numpy calls undefined are meant
        function = jax.jit(entry.function, keep_unused=True)
        module, count = _lowered(function, entry)
        expected = [_run(function, call) for call in entry.inputs]
    inputs = [f"x{i}" for i in range(len(entry.inputs[0]))]
    job = {
        "inputs": inputs,
        "outputs": [f"y{i}" for i in range(count)],
        "copies": entry.copies,
        "batch": entry.batch,
        "calls": len(entry.inputs),
    }
    folder.mkdir()
    (folder / "module.mlirbc").write_bytes(module)
    (folder / "job.json").write_text(json.dumps(job))
    for number, call in enumerate(entry.inputs):
        write_arrays(folder / f"inputs-{number}", dict(zip(inputs, call, strict=True)))
    return expected


def _lowered(function: Any, entry: Entry) -> tuple[bytes, int]:
    scope = export.SymbolicScope()
    sizes = export.symbolic_shape("n", scope=scope) if entry.batch else ()
    shapes = [
        jax.ShapeDtypeStruct(
            (*sizes, *x.shape[1:]) if entry.batch else x.shape, x.dtype
        )
        for x in entry.inputs[0]
    ]
    calls = ("lapack_spotrf_ffi", "Cholesky")
    allowed = [export.DisabledSafetyCheck.custom_call(name) for name in calls]
    exported = export.export(
        function, platforms=[entry.platform], disabled_checks=allowed
    )(*shapes)
    return exported.mlir_module_serialized, len(exported.out_avals)


def _run(function: Any, call: tuple[Array, ...]) -> list[Array]:
    lowered = function.lower(*call)
    executable = lowered.compile(compiler_options=dict(XLA_CPU_OPTIONS))
    return [np.asarray(y) for y in jax.tree.leaves(executable(*call))]
