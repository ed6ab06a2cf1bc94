"""What can run a .tflite faster than plain kernels, as the installed wheel tells on this host.

Nothing is inferred for hardware that is not here: what cannot be tried is said to be untested.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.errors import LiteRtUnloadableError
from tpu_export.converters.litert.process import run_module

_WORKER = "tpu_export.converters.litert.delegates_worker"
_ACCELERATORS = ("CPU", "GPU", "NPU")
# The package of each vendor's SDK, which the wheel's ahead-of-time compiler imports.
_SDKS = {
    "google_tensor": "ai_edge_litert_sdk_google_tensor",
    "intel_openvino": "ai_edge_litert_sdk_intel",
    "mediatek": "ai_edge_litert_sdk_mediatek",
    "qualcomm": "ai_edge_litert_sdk_qualcomm",
    "samsung": "ai_edge_litert_sdk_samsung",
}


@dataclass(frozen=True)
class Delegates:
    """What was tried here.

    Attributes:
        taken, left: count of each op of the first signature's graph that XNNPACK took, and
            that plain kernels run; partitions: how many pieces XNNPACK got.
        accelerators: what CompiledModel says of each kind of hardware.
        compilers: what became of each vendor's ahead-of-time plugin in the wheel.
    """

    taken: dict[str, int]
    left: dict[str, int]
    partitions: int
    accelerators: dict[str, str]
    compilers: dict[str, str]


def delegates(path: Path) -> Delegates:
    """Load a .tflite with each delegate of the wheel, each in a process of its own.

    Raises:
        LiteRtUnloadableError: the Interpreter cannot load the file.
    """
    status, answer, words = _asked("xnnpack", str(path))
    if status != 0:
        raise LiteRtUnloadableError(
            f"LiteRT's Interpreter cannot load {path}: {words}",
            hint="`tpu-export --target litert` writes no such file",
        )
    ops = answer["ops"]
    return Delegates(
        taken=_counted(op["name"] for op in ops if op["taken"]),
        left=_counted(op["name"] for op in ops if not op["taken"]),
        partitions=answer["partitions"],
        accelerators={kind: _accelerator(path, kind) for kind in _ACCELERATORS},
        compilers={vendor: _compiler(vendor) for vendor in plugins()},
    )


def plugins() -> dict[str, Path]:
    """Return the ahead-of-time plugin of each vendor that the wheel carries."""
    spec = importlib.util.find_spec("ai_edge_litert")
    places = spec.submodule_search_locations if spec else None
    found = sorted(Path(p) for root in places or () for p in _libraries(Path(root)))
    return {path.parents[1].name: path for path in found}


def _libraries(root: Path) -> list[Path]:
    return list(root.glob("vendors/*/compiler/libLiteRtCompilerPlugin_*.so"))


def _counted(names: Any) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _accelerator(path: Path, kind: str) -> str:
    """Say whether the whole model runs on one kind of hardware."""
    status, answer, words = _asked("accelerator", str(path), kind)
    if status != 0:
        why = words if status > 0 else f"died by signal {-status}"
        return f"did not load here: {why}"
    if kind == "CPU" and not answer["whole"]:
        return "yes, in part by plain kernels"
    return "yes, the whole model" if answer["whole"] else "in part"


def _compiler(vendor: str) -> str:
    """Say what an ahead-of-time compile lacks here; none was ever made here."""
    status, _, words = _asked("plugin", str(plugins()[vendor]))
    package = _SDKS.get(vendor)
    if status != 0:
        return f"untested: the plugin cannot be loaded: {words}"
    if package is None or importlib.util.find_spec(package) is None:
        return (
            f"untested: the plugin loads, its SDK is missing ({package or 'unknown'})"
        )
    return "untested: the plugin loads, and its SDK is installed"


def _asked(*argv: str) -> tuple[int, Any, str]:
    with tempfile.TemporaryDirectory(prefix="tpu-export-litert-") as name:
        path = Path(name) / "answer.json"
        status, words = run_module(_WORKER, str(path), *argv)
        answer = json.loads(path.read_text()) if path.exists() else {}
    return status, answer, answer.get("error") or _said(words)


def _said(words: str) -> str:
    """Return the first error that a library printed, without its place in the sources."""
    found = re.search(r"ERROR: \[[^\]]*\] ([^|]+)", words)
    return found.group(1).strip() if found else words


def partition(
    ops: Sequence[dict[str, Any]], pieces: Sequence[dict[str, Any]]
) -> set[int]:
    """Return the indices of the ops inside pieces: between a piece's inputs and outputs."""
    makers = {tensor: op for op in ops for tensor in op["outputs"]}
    taken: set[int] = set()
    for piece in pieces:
        borders, waiting = set(piece["inputs"]), list(piece["outputs"])
        while waiting:
            op = makers.get(waiting.pop())
            if op is None or op["index"] in taken:
                continue
            taken.add(op["index"])
            waiting += [t for t in op["inputs"] if t not in borders]
    return taken
