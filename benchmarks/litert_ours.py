"""Our side of the LiteRT benchmark: ``litert_ours.py NAME FOLDER`` prints one JSON line.

Leaves in FOLDER the float and the quantized files, inputs, expected outputs, the model as .onnx
and .pt2. With ``--watch``, memory is measured instead of time, and only the files are left.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import litert_models as models
import numpy as np
import torch
from litert_memory import Watch

from tpu_export.converters.litert import build
from tpu_export.converters.litert.model import LiteRtModel
from tpu_export.converters.litert.quantize import quantize, read_recipe
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.rungs import flat_inputs
from tpu_export.parity.samples import Samples
from tpu_export.runtime.errors import TpuExportError


def measure(name: str, folder: Path, watched: bool) -> dict[str, Any]:
    model, args, kwargs = models.build(name)
    warm_up()
    with Watch() if watched else nullcontext() as watch:
        times, captured, plain = convert(model, args, kwargs)
    weights = models.weight_bytes(model)
    result: dict[str, Any] = {
        "weights": weights,
        "capture": times[1] - times[0],
        "convert": times[2] - times[1] + plain.report.seconds,
        "proof": times[4] - times[2] - plain.report.seconds,
    }
    if watch is not None:
        converted = times[2] + plain.report.seconds
        result["memory"] = watch.growth(times[0], converted) / weights
        result["memory_with_proof"] = watch.growth(times[0], times[4]) / weights
    examples = models.calls(name, args, kwargs)
    feeds = [models.labelled(e) for e in examples]
    if not watched:
        plain.save(folder / "ours-float.tflite")
        leave_for_others(model, examples, folder)
    result["inputs"] = [spec.name for spec in captured.signature.inputs]
    result["outputs"] = [spec.name for spec in captured.signature.outputs]
    named = [dict(zip(result["inputs"], f.values(), strict=True)) for f in feeds]
    result["recipes"] = {
        recipe: quantized(plain, recipe, named, folder, watched, weights)
        for recipe in json.loads((folder / "recipes.json").read_text())
    }
    return result


def convert(
    model: torch.nn.Module, args: Any, kwargs: Any
) -> tuple[list[float], Captured, LiteRtModel]:
    """Return when each stage ended, what was captured and the file that was tried out."""
    times = [time.monotonic()]
    captured = capture(model, args, kwargs)
    times.append(time.monotonic())
    program = lower(captured, target="litert").program
    times.append(time.monotonic())
    sample = Samples().of(captured)[-1]
    inputs = {captured.name: flat_inputs(captured.signature, sample)}
    candidate = build({captured.name: program}, inputs=inputs)
    times.append(time.monotonic())
    plain = candidate.checked()
    times.append(time.monotonic())
    return times, captured, plain


def quantized(
    plain: LiteRtModel,
    recipe: str,
    calls: list[dict[str, np.ndarray]],
    folder: Path,
    watched: bool,
    weights: int,
) -> dict[str, Any]:
    name = next(iter(plain.signatures))
    start = time.monotonic()
    with Watch() if watched else nullcontext() as watch:
        begun = time.monotonic()
        try:
            made = quantize(plain, read_recipe(recipe), {name: calls})
        except TpuExportError as error:
            return {"failed": f"{error.code}: {error}"}
        end = time.monotonic()
    made.model.save(folder / f"ours-{recipe}.tflite")
    found: dict[str, Any] = {"seconds": end - begun}
    if watch is not None:
        found["memory"] = watch.growth(start, end) / weights
    return found


def leave_for_others(
    model: torch.nn.Module, examples: list[models.Example], folder: Path
) -> None:
    args, kwargs = examples[0]
    flat = torch.export.export(models.Flat(model), args, kwargs)
    torch.export.save(flat, folder / "model.pt2")
    torch.onnx.export(
        model, args, folder / "model.onnx", kwargs=kwargs, dynamo=True, verbose=False
    )
    for i, example in enumerate(examples):
        np.savez(folder / f"inputs-{i}.npz", **models.labelled(example))
    for i, outputs in enumerate(models.expected(model, examples)):
        np.savez(folder / f"expected-{i}.npz", **outputs)


def warm_up() -> None:
    """Pay the imports and first-call costs of torch.export and JAX before timing."""
    linear = torch.nn.Linear(4, 4).eval()
    lowered = lower(capture(linear, (torch.ones(2, 4),)), target="litert")
    build({"forward": lowered.program})


if __name__ == "__main__":
    found = measure(sys.argv[1], Path(sys.argv[2]), "--watch" in sys.argv)
    print("RESULT " + json.dumps(found))
