"""Biases that are too large for their integers, as of channels whose weights are near zero.

A bias is held in steps of input scale x weight scale. Where all weights of a channel are near
zero, as of a dead or pruned one, ai-edge-quantizer gives them a scale so small that the bias is
clipped to 32 bits: the channel computes another number. Here such a channel gets larger steps. Of
its weights only that is lost which int8 activations could not show beside the bias.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import Node, nodes_of, read_model, write_model

_AXES = {"FULLY_CONNECTED": 0, "CONV_2D": 0, "DEPTHWISE_CONV_2D": 3}  # of channels
# Half of int32: the other half is for the sum of products that the bias is added to.
_LARGEST = 2**30
_INT8 = 9  # of the schema's TensorType, as are these
_INTEGERS = {2: np.int32, 4: np.int64}


@dataclass(frozen=True)
class _Biased:
    """An op of integers with its bias in floats; tensors of the quantized file."""

    node: Node
    data: Any
    weight: Any
    bias: Any
    values: Array

    @property
    def least(self) -> Array:
        """The smallest scale of each channel's weights that leaves room for the bias."""
        found: Array = np.abs(self.values) / (
            self.data.quantization.scale[0] * float(_LARGEST)
        )
        return found


def hold_biases(plain: Path, path: Path) -> list[str]:
    """Rewrite a quantized file where biases are clipped; returns what was done, in words.

    Args:
        plain: the float file; an op is found again by the name of its result.
    """
    before, after = read_model(plain), read_model(path)
    sharing: dict[int, list[_Biased]] = {}
    for op in _biased(before, after):
        sharing.setdefault(op.weight.buffer, []).append(op)
    raised = [(_raise(after, ops), ops[0].node.place) for ops in sharing.values()]
    raised = [(count, place) for count, place in raised if count]
    if not raised:
        return []
    write_model(after, path)
    more = f" and {len(raised) - 1} more ops" if len(raised) > 1 else ""
    return [
        f"larger steps for near-zero weights, whose bias did not fit, in "
        f"{sum(count for count, _ in raised)} channels: {raised[0][1]}{more}"
    ]


def _biased(before: Any, after: Any) -> Iterator[_Biased]:
    for old, new in zip(before.subgraphs, after.subgraphs, strict=True):
        floats = {old.tensors[n.outputs[0]].name: n for n in nodes_of(before, old)}
        for node in nodes_of(after, new):
            twin = floats.get(new.tensors[node.outputs[0]].name)
            if node.name not in _AXES or len(node.inputs) < 3 or twin is None:
                continue
            data, weight, bias = (new.tensors[t] for t in node.inputs[:3])
            values = before.buffers[old.tensors[twin.inputs[2]].buffer].data
            if bias.type in _INTEGERS and weight.type == _INT8 and values is not None:
                numbers = np.frombuffer(bytes(values), np.float32)
                yield _Biased(node, data, weight, bias, numbers)


def _raise(model: Any, ops: Sequence[_Biased]) -> int:
    """Give channels larger steps where a bias needs them; returns how many got them."""
    weight = ops[0].weight
    old = np.broadcast_to(weight.quantization.scale, ops[0].values.shape)
    new = np.maximum(old, np.max([op.least for op in ops], 0)).astype(np.float32)
    count = int((new > old).sum())
    if count:
        axis = _AXES[ops[0].node.name]
        rows = np.frombuffer(bytes(model.buffers[weight.buffer].data), np.int8)
        rows = np.moveaxis(rows.reshape(tuple(map(int, weight.shape))), axis, -1)
        rows = np.moveaxis(np.rint(rows * (old / new)), -1, axis)
        model.buffers[weight.buffer].data = _bytes(rows.astype(np.int8))
        for tensor in (t for graph in model.subgraphs for t in graph.tensors):
            if tensor.buffer == weight.buffer:
                _set_steps(tensor, new, axis)
        for op in ops:
            _set_bias(model, op, new)
    return count


def _set_bias(model: Any, op: _Biased, scale: Array) -> None:
    """Hold a bias in steps of new scales of the weights, in a buffer of its own."""
    from ai_edge_litert import schema_py_generated as schema

    steps = scale * op.data.quantization.scale[0]
    integers = np.rint(op.values / steps.astype(np.float64))
    buffer = schema.BufferT()
    buffer.data = _bytes(integers.astype(_INTEGERS[op.bias.type]))
    model.buffers.append(buffer)
    op.bias.buffer = len(model.buffers) - 1
    _set_steps(op.bias, steps, 0)


def _set_steps(tensor: Any, scale: Array, axis: int) -> None:
    tensor.quantization.scale = scale
    tensor.quantization.zeroPoint = np.zeros(scale.shape, np.int64)
    tensor.quantization.quantizedDimension = axis


def _bytes(values: Array) -> Array:
    return np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
