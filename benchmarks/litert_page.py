"""The page of the LiteRT benchmark, from its results."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, TypeAlias

import litert_environments as environments

Results: TypeAlias = Mapping[str, Mapping[str, Any]]
SIDES = ("ours", "theirs")
PACKAGES = ("torch", "litert-converter", "ai-edge-litert", "ai-edge-quantizer")


def document(results: Results) -> str:
    versions = ", ".join(f"{p} {version(p)}" for p in (*PACKAGES, "onnxruntime"))
    failures = _failures(results)
    failed = f"\n## What failed\n\n{failures}\n" if failures else ""
    return f"""# LiteRT benchmarks

Written by `python benchmarks/litert_peers.py` ({time.strftime("%Y-%m-%d")}), a part of
`make bench`. Do not edit.

{platform.machine()}, {os.cpu_count()} cores, {platform.system()}, Python
{platform.python_version()}; {versions}. Peers: {environments.LITERT_TORCH},
{environments.EXECUTORCH}, each in an environment of its own with the same torch.

## Conversion

{_conversion(results)}

Seconds of one conversion in a fresh process that has converted a tiny model before. *after
capture*: ours lowers, computes what depends on weights only, and converts; litert-torch
captures by itself, so the time of `torch.export` in its environment, measured alone, is taken
off. *proof*: XLA:CPU computes the answer, both LiteRT engines run the file and are compared
with it; litert-torch has no such step. *peak*: the most that the process and all processes
below it held together above the loaded model (proportional set size, sampled each 10 ms in a
second run), as a multiple of the model's weights. A worker process alone, with its libraries,
is some 100 MB: a large multiple of small weights.

## Size, latency and error

{_files(results)}

Latency is the minimum of {_rounds()} rounds in one process in which all files take turns, a
call with all cores' threads; *ours / theirs* below 1 means that ours is faster or smaller. SNR
in decibels, and the largest |error| / (|expected| + rms), over the outputs of {_calls()} calls
against torch eager in float64. Quantized files of litert-torch are made from its float file by
ai-edge-quantizer, with the same recipe and the same calibration data as ours.

## Quantizing

{_quantizing(results)}

Ours reads the file back and says what of it is quantized.

## Float latency next to other runtimes

{_runtimes(results)}

All cores' threads; *x / ours* above 1 means that ours (Interpreter) is faster. ONNX Runtime
takes turns with our file in the process of the table above, ExecuTorch with XNNPACK in a
process of its own.
{failed}"""


def _rounds() -> int:
    from litert_timing import ROUNDS

    return ROUNDS


def _calls() -> int:
    from litert_models import CALLS

    return CALLS


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(value: float, form: str = ".2f") -> str:
    """Return a number, or a dash where a part of it is missing."""
    return "–" if math.isnan(value) else format(value, form)


def _at(found: Any, *path: str) -> float:
    """Return a number of nested results, or NaN."""
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, int | float) else math.nan


def _conversion(results: Results) -> str:
    header = ["model", "weights MB", "after capture s", "theirs", "ours / theirs"]
    header += ["with capture s", "theirs", "proof s"]
    header += ["peak / weights", "theirs", "peak with proof"]
    rows = []
    for name, r in results.items():
        capture, convert = _at(r, "ours", "capture"), _at(r, "ours", "convert")
        whole = _at(r, "theirs", "with_capture")
        after = whole - _at(r, "theirs", "capture")
        numbers = [convert, after, convert / after, capture + convert, whole]
        numbers += [
            _at(r, "ours", "proof"),
            _at(r, "ours watched", "memory"),
            _at(r, "theirs watched", "memory"),
            _at(r, "ours watched", "memory_with_proof"),
        ]
        weights = _text(_at(r, "ours", "weights") / 1e6, ".1f")
        rows.append([name, weights, *map(_text, numbers)])
    return table(header, rows)


def _files(results: Results) -> str:
    header = ["model", "recipe", "MB", "ours / theirs", "Interpreter ms"]
    header += ["ours / theirs", "CompiledModel ms", "ours / theirs"]
    header += ["SNR dB", "theirs", "largest error", "theirs"]
    rows = [
        [name, recipe, *_file(found)]
        for name, r in results.items()
        for recipe, found in r.get("race", {}).items()
        if isinstance(found, Mapping)
    ]
    return table(header, rows)


def _file(found: Mapping[str, Any]) -> list[str]:
    size = _at(found, "ours", "bytes")
    cells = [_text(size / 1e6), _text(size / _at(found, "theirs", "bytes"), ".4f")]
    for engine in ("interpreter", "compiled"):
        ms = _at(found, "ms", f"ours {engine}", "min")
        cells += [_text(ms), _text(ms / _at(found, "ms", f"theirs {engine}", "min"))]
    for key, form in (("snr", ".1f"), ("error", ".1e")):
        cells += [_text(_at(found, side, key), form) for side in ("ours", "theirs")]
    return cells


def _quantizing(results: Results) -> str:
    header = ["model", "recipe", "s", "theirs", "peak / weights", "theirs"]
    rows = [
        [
            name,
            recipe,
            *(_text(_at(r, s, "recipes", recipe, "seconds")) for s in SIDES),
            *(
                _text(_at(r, f"{s} watched", "recipes", recipe, "memory"))
                for s in SIDES
            ),
        ]
        for name, r in results.items()
        for recipe in r.get("ours", {}).get("recipes", {})
    ]
    return table(header, rows)


def _runtimes(results: Results) -> str:
    header = ["model", "ours ms", "onnxruntime / ours", "executorch / ours"]
    header += ["executorch .pte MB", "executorch lowering s", "executorch SNR dB"]
    rows = []
    for name, r in results.items():
        ms, third = r.get("race", {}).get("float", {}).get("ms"), r.get("executorch")
        ours = _at(ms, "ours interpreter", "min")
        peer = _at(third, "ms", "executorch", "min") / _at(third, "ms", "ours", "min")
        numbers = [ours, _at(ms, "onnxruntime", "min") / ours, peer]
        numbers += [_at(third, "bytes") / 1e6, _at(third, "convert")]
        rows.append([name, *map(_text, numbers), _text(_at(third, "snr"), ".1f")])
    return table(header, rows)


def _failures(results: Results) -> str:
    """Return a line for each part that failed, in its own words."""
    lines = []

    def walk(place: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            return
        if "failed" in value:
            lines.append(f"* {place}: {value['failed']}")
        for key, inner in value.items():
            walk(f"{place}, {key}", inner)

    for name, result in results.items():
        walk(name, result)
    return "\n".join(lines)
