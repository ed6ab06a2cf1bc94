"""Load a file with one delegate: ``python -m …delegates_worker ANSWER QUESTION …``.

A process of its own, because drivers and vendors' plugins may crash it. Writes ANSWER, JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.delegates import partition


def xnnpack(path: str) -> dict[str, Any]:
    """Tell which ops of the first graph XNNPACK took, as the Interpreter comes."""
    from ai_edge_litert.interpreter import Interpreter

    engine = Interpreter(model_path=path)
    engine.allocate_tensors()
    nodes = [
        {
            "index": int(node["index"]),
            "name": str(node["op_name"]),
            "inputs": [int(t) for t in node["inputs"]],
            "outputs": [int(t) for t in node["outputs"]],
        }
        for node in engine._get_ops_details()
    ]
    pieces = [node for node in nodes if node["name"] == "DELEGATE"]
    ops = [node for node in nodes if node["name"] != "DELEGATE"]
    taken = partition(ops, pieces)
    told = [{"name": op["name"], "taken": op["index"] in taken} for op in ops]
    return {"ops": told, "partitions": len(pieces)}


def accelerator(path: str, kind: str) -> dict[str, Any]:
    """Load a file in CompiledModel for one kind of hardware, without another to fall back to."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator

    model = CompiledModel.from_file(path, HardwareAccelerator[kind])
    return {"whole": model.is_fully_accelerated()}


def plugin(path: str) -> dict[str, Any]:
    """Load a vendor's library."""
    ctypes.CDLL(path)
    return {}


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "accelerator": accelerator,
    "plugin": plugin,
    "xnnpack": xnnpack,
}


def main(argv: Sequence[str]) -> int:
    """Answer a question."""
    answer, question, *rest = argv[1:]
    try:
        found = QUESTIONS[question](*rest)
    except Exception as error:  # any answer of the bindings is an outcome
        found = {"error": _words(error)}
    Path(answer).write_text(json.dumps(found))
    return 1 if "error" in found else 0


def _words(error: Exception) -> str:
    """Return what an error says beside places of the wheel's sources and of this host."""
    lines = [line.strip("└ ") for line in str(error).splitlines()]
    plain = [line for line in lines if line and not line.startswith("ERROR: [")]
    found = " ".join(plain)
    return found.rpartition("/")[2] if found.startswith("/") else found


if __name__ == "__main__":
    sys.exit(main(sys.argv))
