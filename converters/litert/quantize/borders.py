"""uint8 at the inputs and outputs of a .tflite: ai-edge-quantizer makes int8 only.

The same scale with a zero point 128 higher: a QUANTIZE from one to the other loses nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.graph import (
    Graph,
    cast,
    pack,
    read_graph,
    whole_fork,
)

_SHIFT = 128


def as_uint8(path: Path, signatures: Sequence[str]) -> None:
    """Rewrite a file: where its signatures take or give int8 activations, uint8."""
    for name in signatures:
        graph = whole_fork(read_graph(path, name))
        operators = graph.subgraph.operators
        entering = [_outside(graph, entry) for entry in graph.definition.inputs]
        leaving = [_outside(graph, entry) for entry in graph.definition.outputs]
        operators[:0] = [cast(graph, new, old) for old, new in entering if old != new]
        operators += [cast(graph, old, new) for old, new in leaving if old != new]
        graph.subgraph.inputs = _replaced(graph.subgraph.inputs, dict(entering))
        graph.subgraph.outputs = _replaced(graph.subgraph.outputs, dict(leaving))
        pack(graph, path)


def _outside(graph: Graph, entry: Any) -> tuple[int, int]:
    """Let an input or output of the signature be uint8; returns its tensor before and after."""
    old = entry.tensorIndex
    scale = graph.scale_of(old)
    if scale is None or scale.dtype != np.int8:
        return old, old
    tensors = graph.subgraph.tensors
    new = copy.copy(tensors[old])
    new.name, new.buffer, new.type = new.name + b"_uint8", 0, _uint8()
    new.quantization = copy.copy(new.quantization)
    new.quantization.zeroPoint = np.array([scale.zero + _SHIFT], np.int64)
    tensors.append(new)
    entry.tensorIndex = len(tensors) - 1
    return old, entry.tensorIndex


def _uint8() -> int:
    from ai_edge_litert import schema_py_generated as schema

    return int(schema.TensorType.UINT8)


def _replaced(tensors: Any, by: dict[int, int]) -> Any:
    return np.array([by[int(t)] for t in tensors], np.int32)
