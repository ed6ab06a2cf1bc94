"""litert-torch's side of the LiteRT benchmark; runs in its environment, as litert_ours.py does.

    litert_theirs.py NAME FOLDER [--watch]

Its float file is quantized by ai-edge-quantizer, with the recipes and the data that ours gets.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import litert_files
import litert_models as models
import litert_torch
import numpy as np
import torch
from ai_edge_quantizer import quantizer
from litert_memory import Watch


def measure(name: str, folder: Path, watched: bool) -> dict[str, Any]:
    model, args, kwargs = models.build(name)
    weights = models.weight_bytes(model)
    litert_torch.convert(torch.nn.Linear(4, 4).eval(), (torch.ones(2, 4),))  # warm up
    path = folder / "theirs-float.tflite"
    with Watch() if watched else nullcontext() as watch:
        start = time.monotonic()
        edge = litert_torch.convert(model, args, kwargs or None)
        edge.export(str(path))
        end = time.monotonic()
    del edge
    result: dict[str, Any] = {"with_capture": end - start}
    if watch is not None:
        result["memory"] = watch.growth(start, end) / weights
    else:
        start = time.monotonic()
        torch.export.export(model, args, kwargs or None)
        result["capture"] = time.monotonic() - start
    calls = [named(models.labelled(e)) for e in models.calls(name, args, kwargs)]
    recipes = json.loads((folder / "recipes.json").read_text())
    result["recipes"] = {
        recipe: quantized(path, recipe, config, calls, watched, weights)
        for recipe, config in recipes.items()
    }
    return result


def named(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return inputs by the names of its files: args_0 …, or the keyword."""
    return {f"args_{n}" if n.isdigit() else n: array for n, array in feed.items()}


def quantized(
    path: Path,
    recipe: str,
    config: list[dict[str, Any]],
    calls: list[dict[str, np.ndarray]],
    watched: bool,
    weights: int,
) -> dict[str, Any]:
    kept = {"algorithm_key": "no_quantize", "op_config": {}}
    configs = [{"regex": ".*", **own} for own in config]
    configs += [{"regex": ".*", "operation": o, **kept} for o in ("INPUT", "OUTPUT")]
    with Watch() if watched else nullcontext() as watch:
        start = time.monotonic()
        try:
            work = quantizer.Quantizer(str(path))
            work.load_quantization_recipe(configs)
            qualities = None
            if recipe.startswith("static-"):
                fit = [litert_files.cast(path, call) for call in calls]
                qualities = work.calibrate({"serving_default": fit})
            made = work.quantize(qualities, enable_progress_report=False)
            file = path.with_name(f"theirs-{recipe}.tflite")
            file.write_bytes(made.quantized_model)
        except Exception as error:  # whatever a peer raises is its result
            return {"failed": f"{type(error).__name__}: {error}"[:300]}
        end = time.monotonic()
    found: dict[str, Any] = {"seconds": end - start}
    if watch is not None:
        found["memory"] = watch.growth(start, end) / weights
    return found


if __name__ == "__main__":
    found = measure(sys.argv[1], Path(sys.argv[2]), "--watch" in sys.argv)
    print("RESULT " + json.dumps(found))
