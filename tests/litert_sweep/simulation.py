"""A reference simulation of a quantized .tflite: numbers on its grids, ops in float32.

The file is walked op by op. Each op is computed by the float file's kernel of the same op, on
plain numbers, with the quantized file's own weights widened to float32; what comes out is rounded
to the grid of the quantized file's tensor, value = scale * (q - zero), q in the integers of its
dtype. An op that scales its input at each call gets each row of it on a grid of 255 steps, from
the least of its values and 0 to the largest. All rounding is done here, by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from litert_sweep.kernels import Kernel
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import Graph, widened
from tpu_export.parity.layer_runs import Pair

# By the schema's TensorType; "" for those of no constant here.
_DTYPES = (
    *("float32", "float16", "int32", "uint8", "int64", "", "bool", "int16", "", "int8"),
)
# Ops that scale a float input at each call where their weights are integers.
_PRODUCTS = ("FULLY_CONNECTED", "BATCH_MATMUL")
_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")


@dataclass(frozen=True)
class Simulation:
    """Computes what a quantized file should: values by its tensors, integers as numbers."""

    pair: Pair
    kernels: dict[int, Kernel] = field(default_factory=dict)

    def run(self, call: Mapping[str, Array]) -> dict[int, Array]:
        """Return every tensor's value for a call in float32."""
        values = self.given(call)
        for position in range(len(self.pair.integer.nodes)):
            values |= self.made(position, values)
        return values

    def given(self, call: Mapping[str, Array]) -> dict[int, Array]:
        """Return the inputs on their grids."""
        inputs = self.pair.integer.inputs
        return {t: self._held(t, np.asarray(call[name])) for name, t in inputs.items()}

    def made(self, position: int, values: Mapping[int, Array]) -> dict[int, Array]:
        """Return what an op makes of values, on the grids of its results."""
        node = self.pair.integer.nodes[position]
        if self.is_cast(position):
            if all(t in self._widened for t in node.outputs):
                return {}
            (source,), (result,) = node.inputs, node.outputs
            return {result: self._held(result, self._value(source, values))}
        kernel = self._kernel(position)
        feeds = self._feeds(position)
        given = [self._value(feeds[t], values) for t in kernel.inputs]
        if self.scales(position):
            given[0] = on_grids(given[0], self.shared(position))
        made = zip(node.outputs, kernel(given), strict=True)
        return {t: self._held(t, value) for t, value in made}

    def scales(self, position: int) -> bool:
        """Whether an op of the quantized file scales its input at each call."""
        graph, node = self.pair.integer, self.pair.integer.nodes[position]
        return (
            node.name in (*_PRODUCTS, *_CONVOLUTIONS)
            and graph.is_float(node.inputs[0])
            and graph.subgraph.tensors[node.inputs[1]].type == 9
        )

    def shared(self, position: int) -> int:
        """Return how many of the last axes of such an input have one scale.

        XNNPACK computes a convolution with a filter of one place, moved by one, as a product of
        rows.
        """
        node = self.pair.integer.nodes[position]
        if node.name in _PRODUCTS:
            return 1
        places = self.pair.integer.subgraph.tensors[node.inputs[1]].shape[1:3]
        options = self.pair.integer.subgraph.operators[position].builtinOptions
        moves = (options.strideH, options.strideW)
        rows = node.name == "CONV_2D" and max(*places, *moves) == 1
        return 1 if rows else 3

    def unit(self, position: int, values: Mapping[int, Array]) -> float:
        """Return the most by which one step of such an input changes a result."""
        node = self.pair.integer.nodes[position]
        given = self._value(node.inputs[0], values).astype(np.float64)
        largest = np.abs(self.weight(node.inputs[1])).max()
        return float(step(given, self.shared(position)).max() * largest)

    def is_cast(self, position: int) -> bool:
        """Whether an op of the quantized file has none in the float file."""
        return position not in self._twins

    def weight(self, tensor: int) -> Array:
        """Return a constant of the quantized file as numbers."""
        return numbers(self.pair.integer, self._widened.get(tensor, tensor))

    @cached_property
    def _twins(self) -> dict[int, int]:
        pair = self.pair
        return dict(zip(pair.twin_order, pair.order, strict=True))

    @cached_property
    def _widened(self) -> dict[int, int]:
        return widened(self.pair.integer)

    def _fixed(self, tensor: int) -> bool:
        return tensor in self._widened or self.pair.integer.is_constant(tensor)

    def _value(self, tensor: int, values: Mapping[int, Array]) -> Array:
        return self.weight(tensor) if self._fixed(tensor) else values[tensor]

    def _held(self, tensor: int, value: Array) -> Array:
        scale = self.pair.integer.scale_of(tensor)
        return value if scale is None else scale.value(scale.quantized(value))

    def _feeds(self, position: int) -> dict[int, int]:
        """Return the tensors of the quantized file by those of the float op."""
        plain = self.pair.plain.nodes[self._twins[position]]
        own = self.pair.integer.nodes[position]
        return dict(zip(plain.inputs, own.inputs, strict=True))

    def _kernel(self, position: int) -> Kernel:
        if position not in self.kernels:
            plain = self.pair.plain
            held = {
                t: self.weight(own)
                for t, own in self._feeds(position).items()
                if plain.is_constant(t) and plain.is_float(t)
            }
            self.kernels[position] = Kernel(plain, self._twins[position], held)
        return self.kernels[position]


def on_grids(x: Array, axes: int) -> Array:
    """Return values on grids of 255 steps, one for all that share the leading indices."""
    wide = x.astype(np.float64)
    scale = step(wide, axes)
    low = np.minimum(wide.min(axis=_last(x, axes), keepdims=True), 0)
    zero = np.clip(np.rint(-128 - low / scale), -128, 127)
    q = np.clip(np.rint(wide / scale) + zero, -128, 127)
    return ((q - zero) * scale).astype(np.float32)


def step(x: Array, axes: int) -> Array:
    """Return the steps of these grids, with axes of one for those that share them."""
    low = np.minimum(x.min(axis=_last(x, axes), keepdims=True), 0)
    high = np.maximum(x.max(axis=_last(x, axes), keepdims=True), 0)
    width = (high - low) / 255
    return np.where(width == 0, 1.0, width)


def _last(x: Array, axes: int) -> tuple[int, ...]:
    return tuple(range(max(x.ndim - axes, 0), x.ndim))


def numbers(graph: Graph, tensor: int) -> Array:
    """Return what a constant stands for: a scale for all of it, or for each channel."""
    held = graph.subgraph.tensors[tensor]
    raw = bytes(graph.model.buffers[held.buffer].data)
    shape = [int(d) for d in held.shape] if held.shape is not None else []
    found: Array = np.frombuffer(raw, _DTYPES[held.type], math.prod(shape))
    found = found.reshape(shape)
    quantization: Any = held.quantization
    if quantization is None or quantization.scale is None:
        return found
    zero = quantization.zeroPoint
    lined = [1] * len(shape)
    if len(quantization.scale) > 1:
        lined[quantization.quantizedDimension] = -1
    scales, zeros = (
        np.reshape(np.asarray(v, np.float64), lined)
        for v in (quantization.scale, [0] if zero is None else zero)
    )
    return ((found - zeros) * scales).astype(np.float32)
