"""Weights with a scale for each block of a row, widened to float before the product.

The runtime's DEQUANTIZE takes such weights for ones with a single scale, and is wrong without a
word. Here the integers are widened as they are, as rows of one block each, multiplied by a column
of steps, and reshaped to the matrix.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.fold import drop_unused, hold, scales_of_blocks
from tpu_export.converters.litert.graph import (
    Graph,
    Node,
    operator,
    pack,
    read_graph,
    read_model,
    whole_fork,
    write_model,
)

_FLOAT32, _INT32 = 0, 2  # of the schema's TensorType


def widen_blocks(
    path: Path, signatures: Sequence[str], chosen: Callable[[Node], bool]
) -> None:
    """Rewrite a file: chosen products of weights in blocks become those of floats."""
    for name in signatures:
        graph = whole_fork(read_graph(path, name))
        made: dict[int, int] = {}
        added: list[Any] = []
        for node, op in zip(graph.nodes, graph.subgraph.operators, strict=True):
            if node.name != "FULLY_CONNECTED" or not chosen(node):
                continue
            weight = node.inputs[1]
            if scales_of_blocks(graph, weight) is None:
                continue
            if weight not in made:
                made[weight], ops = _widened(graph, weight)
                added += ops
            op.inputs = np.array([op.inputs[0], made[weight], *op.inputs[2:]], np.int32)
            op.builtinOptions = copy.copy(op.builtinOptions)
            op.builtinOptions.asymmetricQuantizeInputs = False
        if added:
            graph.subgraph.operators[:0] = added
            drop_unused(graph)
            pack(graph, path)


def fill_blocks(path: Path) -> None:
    """Give blocks whose scale is 0, which the runtime refuses, zeros of another scale.

    A scale is float16. That of a block of zeros comes out as 0, and its integers as anything.
    """
    model = read_model(path)
    found = False
    for tensors in (graph.tensors for graph in model.subgraphs):
        for tensor in tensors:
            details = getattr(tensor.quantization, "details", None)
            index = getattr(details, "scales", None)
            if index is not None:
                scales = model.buffers[tensors[index].buffer]
                found |= _fill(model.buffers[tensor.buffer], scales)
    if found:
        write_model(model, path)


def _fill(weights: Any, scales: Any) -> bool:
    """Rewrite buffers of integers and of float16; whether it was necessary."""
    steps = np.frombuffer(bytes(scales.data), np.float16)
    empty = steps == 0
    if empty.any():
        blocks = np.frombuffer(bytes(weights.data), np.uint8).reshape(len(steps), -1)
        weights.data = np.where(empty[:, None], 0, blocks).astype(np.uint8).reshape(-1)
        scales.data = np.where(empty, 1, steps).astype(np.float16).view(np.uint8)
    return bool(empty.any())


def _widened(graph: Graph, weight: int) -> tuple[int, list[Any]]:
    """Return the tensor of the weights as floats, and the ops that make it."""
    scales = scales_of_blocks(graph, weight)
    assert scales is not None
    tensors = graph.subgraph.tensors
    shape = np.array(tensors[weight].shape, np.int32)
    count = math.prod(tensors[scales].shape)
    rows, column = [count, math.prod(shape) // count], [count, 1]
    held = _add(graph, weight, "rows", rows, like=weight)
    tensors[held].quantization = _single_scale()
    steps = _add(graph, weight, "steps", column, like=scales)
    wide = [_add(graph, weight, "float_steps", column)]
    wide += [_add(graph, weight, f"float_rows{i}", rows) for i in range(2)]
    result = _add(graph, weight, "float", shape.tolist())
    size = _add(graph, weight, "shape", [2])
    tensors[size].type = _INT32
    hold(graph, size, shape)
    return result, [
        operator(graph, "DEQUANTIZE", [steps], [wide[0]], version=3),
        operator(graph, "DEQUANTIZE", [held], [wide[1]], version=6),
        operator(graph, "MUL", [wide[1], wide[0]], [wide[2]]),
        operator(graph, "RESHAPE", [wide[2], size], [result]),
    ]


def _add(
    graph: Graph,
    weight: int,
    suffix: str,
    shape: Sequence[int],
    *,
    like: int | None = None,
) -> int:
    """Add a tensor, of floats or with the values of another."""
    tensors = graph.subgraph.tensors
    new = copy.copy(tensors[weight if like is None else like])
    new.name = tensors[weight].name + f"_{suffix}".encode()
    new.shape, new.shapeSignature = np.array(shape, np.int32), None
    new.quantization = None
    if like is None:
        new.type, new.buffer = _FLOAT32, 0
    tensors.append(new)
    return len(tensors) - 1


def _single_scale() -> Any:
    from ai_edge_litert import schema_py_generated as schema

    found = schema.QuantizationParametersT()
    found.scale, found.zeroPoint = np.ones(1, np.float32), np.zeros(1, np.int64)
    return found
