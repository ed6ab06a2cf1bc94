"""Whether a quantized file still holds the weights: read back, and compared with the float file.

A scale that comes out as zero or as infinity, and numbers below the least of float16, lose weights
without a word. What a number format rounds by nature is no loss: a row of weights may be off by a
step of a scale of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.fold import scales_of_blocks
from tpu_export.converters.litert.graph import Graph, Node, read_graph, widened

_FLOAT16, _INT4 = 1, 17  # of the schema's TensorType
# TensorType: dtype, and the largest error of a number as a share of the row's largest one, a step
# of an exact scale.
_FORMATS: dict[int, tuple[np.dtype[Any], float]] = {
    1: (np.dtype("float16"), 2.0**-8),
    7: (np.dtype("int16"), 1 / 32767),
    9: (np.dtype("int8"), 1 / 127),
    17: (np.dtype("int8"), 1 / 7),
}
_WEIGHTED = {"BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}
# A row this much smaller than the largest of its weights may be less exact.
_SMALL_ROW = 2.0**-10


@dataclass(frozen=True)
class Lost:
    """A constant whose numbers are not those of the float file.

    Attributes:
        node: op of the float file; rows: (how many are lost, of how many).
    """

    node: Node
    rows: tuple[int, int]

    @property
    def is_weight(self) -> bool:
        """Whether it has a scale of its own; others may share that of an activation."""
        return self.node.name in _WEIGHTED


def lost_weights(plain: Path, quantized: Path, signature: str) -> Iterator[Lost]:
    """Compare the weights of a signature; an op is found again by the name of its result."""
    before, after = read_graph(plain, signature), read_graph(quantized, signature)
    made = {_name(after, node): node for node in after.nodes}
    sources = widened(after)
    for node in before.nodes:
        twin = made.get(_name(before, node))
        if twin is None or twin.name != node.name:
            continue
        for old, new in zip(node.inputs, twin.inputs, strict=False):
            if before.is_constant(old) and before.is_float(old):
                rows = _lost_rows(before, old, after, sources.get(new, new))
                if rows[0]:
                    yield Lost(node, rows)


def _lost_rows(before: Graph, old: int, after: Graph, new: int) -> tuple[int, int]:
    tensor = after.subgraph.tensors[new]
    if tensor.type not in _FORMATS or not after.is_constant(new):
        return 0, 0
    want = before.constant(old)
    axis = int(getattr(tensor.quantization, "quantizedDimension", 0) or 0)
    with np.errstate(invalid="ignore"):  # a scale of infinity
        got = _numbers(after, new).reshape(want.shape)
    rows = [np.moveaxis(np.atleast_1d(x), axis, 0) for x in (want, got)]
    want, got = (x.reshape(len(x) if x.ndim > 1 else 1, -1) for x in rows)
    top = np.abs(want).max(1, initial=0)
    allowed = _FORMATS[tensor.type][1] * np.maximum(
        top, top.max(initial=0) * _SMALL_ROW
    )
    with np.errstate(invalid="ignore"):
        error = np.abs(got - want).max(1, initial=0)
    return int((~(error <= allowed)).sum()), len(top)


def _numbers(graph: Graph, index: int) -> Array:
    """Return what a quantized constant stands for, in float64."""
    tensor = graph.subgraph.tensors[index]
    raw = np.frombuffer(_data(graph, index), _FORMATS[tensor.type][0])
    shape = tuple(map(int, tensor.shape))
    if tensor.type == _INT4:
        raw = np.stack([raw << 4 >> 4, raw >> 4], -1).reshape(-1)[: np.prod(shape)]
    values: Array = raw.reshape(shape).astype(np.float64)
    if tensor.type == _FLOAT16:
        return values
    blocks = scales_of_blocks(graph, index)
    if blocks is not None:
        scales = np.frombuffer(_data(graph, blocks), np.float16).astype(np.float64)
        values = values.reshape(scales.size, -1) * scales[:, None]
        return values.reshape(shape)
    scale, zero = tensor.quantization.scale, tensor.quantization.zeroPoint
    spread = [1] * len(shape)
    if len(scale) > 1:
        spread[tensor.quantization.quantizedDimension] = -1
    zero = np.zeros(1) if zero is None else zero
    found: Array = (values - np.reshape(zero, spread)) * np.reshape(scale, spread)
    return found


def _data(graph: Graph, tensor: int) -> bytes:
    return bytes(graph.model.buffers[graph.subgraph.tensors[tensor].buffer].data)


def _name(graph: Graph, node: Node) -> Any:
    return graph.subgraph.tensors[node.outputs[0]].name
