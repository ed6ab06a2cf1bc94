"""Tiny models of many architectures: captured, lowered, and compared with torch eager."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.lowering import lower
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.capture import Captured, capture
from tpu_export.model_zoo.architectures import BUILDERS, reference
from tpu_export.parity.eager import as_array, flatten_like
from tpu_export.parity.metrics import difference
from tpu_export.runtime.executables import compile_portable
from tpu_export.runtime.signature import LoweredFunction
from tpu_export.runtime.stablehlo import portable_callable, static_shapes

pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.zoo]

Arrays = dict[str, object]


def call(function: LoweredFunction, values: dict[str, Arrays]) -> dict[str, Arrays]:
    """Compile one function for the CPU and call it; values and results by kind, name."""
    spec = function.spec
    run = compile_portable(
        portable_callable(function.module("cpu"), spec, "cpu"),
        static_shapes(spec.arguments, {}),
        jax.devices("cpu")[0],
        (),
    )
    arrays = run([values[slot.kind][slot.name] for slot in spec.arguments])
    results: dict[str, Arrays] = {}
    for slot, array in zip(spec.results, arrays, strict=True):
        results.setdefault(slot.kind, {})[slot.name] = array
    return results


def run(program: LoweredProgram, captured: Captured) -> Arrays:
    weights: Arrays = {name: as_numpy(w) for name, w in program.weights.items()}
    inputs: Arrays = {
        spec.name: as_numpy(tensor)
        for spec, tensor in zip(
            captured.signature.inputs, captured.example_inputs(), strict=True
        )
    }
    values = {"weight": weights, "state": weights, "input": inputs}
    if program.prepare is not None:
        values |= call(program.prepare, values)
    return call(program.main, values)["output"]


@pytest.mark.parametrize("name", BUILDERS)
def test_architecture(name: str) -> None:
    model, inputs = BUILDERS[name]()
    captured = capture(model, (), inputs)
    program = lower(captured.program, captured.signature, captured.symbol_names)
    with jax.enable_x64(True):
        outputs = run(program, captured)
    expected = flatten_like(captured.signature.output_tree, reference(model, inputs))
    for spec, value in zip(captured.signature.outputs, expected, strict=True):
        assert isinstance(value, torch.Tensor)
        found = difference(np.asarray(outputs[spec.name]), as_array(value))
        assert found.passed, (spec.name, found)
