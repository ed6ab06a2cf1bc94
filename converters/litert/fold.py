"""Compute now what a .tflite would compute from its constants at each load.

The converter folds batch norms into convolutions as products of two constants, and leaves those of
large weights in the file. A quantizer takes such weights for activations: the file is then wrong,
or does not load.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import Graph, fork, pack, read_graph, whole_fork
from tpu_export.converters.litert.isolate import name_outputs, tensor_values


def constant_ops(graph: Graph) -> list[int]:
    """Return the positions of the ops that depend on constants only, but for results."""
    results = set(graph.outputs.values())
    known: set[int] = set()
    found = []
    for i, node in enumerate(graph.nodes):
        fixed = all(graph.is_constant(t) or t in known for t in node.inputs)
        if node.inputs and fixed and not results & set(node.outputs):
            known.update(node.outputs)
            found.append(i)
    return found


def fold_constants(path: Path, signature: str, output: Path) -> bool:
    """Write a file with such ops of a signature computed; False when it has none."""
    graph = read_graph(path, signature)
    positions = constant_ops(graph)
    if not positions:
        return False
    values = _values(graph, positions)
    result = whole_fork(graph)
    kept = set(range(len(graph.nodes))) - set(positions)
    result.subgraph.operators = [result.subgraph.operators[i] for i in sorted(kept)]
    for tensor, value in values.items():
        hold(result, tensor, value)
    drop_unused(result)
    pack(result, output)
    return True


def drop_unused(graph: Graph) -> None:
    """Make one number of the tensors that no op reads any more: readers want all to have some."""
    used = {int(t) for t in (*graph.subgraph.inputs, *graph.subgraph.outputs)}
    for operator in graph.subgraph.operators:
        used.update(int(t) for t in (*operator.inputs, *operator.outputs))
    used |= {s for t in used if (s := scales_of_blocks(graph, t)) is not None}
    for index in range(len(graph.subgraph.tensors)):
        if index not in used:
            hold(graph, index, np.zeros(1, np.float32))
            number = graph.subgraph.tensors[index]
            number.type, number.quantization = 0, None
            number.shape, number.shapeSignature = np.array([1], np.int32), None
    _empty_buffers(graph)


def scales_of_blocks(graph: Graph, tensor: int) -> int | None:
    """Return the tensor of the scales of a weight that has one for each block of a row."""
    quantization = graph.subgraph.tensors[tensor].quantization if tensor >= 0 else None
    scales = getattr(quantization and quantization.details, "scales", None)
    return None if scales is None else int(scales)


def _empty_buffers(graph: Graph) -> None:
    from ai_edge_litert import schema_py_generated as schema

    used = {t.buffer for g in graph.model.subgraphs for t in g.tensors}
    used |= {entry.buffer for entry in graph.model.metadata or ()}
    for index, buffer in enumerate(graph.model.buffers):
        if index not in used and buffer.data is not None:
            graph.model.buffers[index] = schema.BufferT()


def _values(graph: Graph, positions: list[int]) -> Mapping[int, Array]:
    only = fork(graph)
    only.subgraph.operators = [only.subgraph.operators[i] for i in positions]
    only.definition.inputs = []
    only.subgraph.inputs = np.array([], np.int32)
    name_outputs(only, (t for i in positions for t in graph.nodes[i].outputs))
    (found,) = tensor_values(only, [{}])
    return found


def hold(graph: Graph, tensor: int, value: Array) -> None:
    """Give a tensor of a forked graph a value, in a buffer of its own."""
    from ai_edge_litert import schema_py_generated as schema

    buffer = schema.BufferT()
    buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
    graph.model.buffers.append(buffer)
    held = graph.subgraph.tensors[tensor] = copy.copy(graph.subgraph.tensors[tensor])
    held.buffer = len(graph.model.buffers) - 1
