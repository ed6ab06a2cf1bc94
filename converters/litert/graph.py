"""One signature of a .tflite as a graph that can be read and rewritten."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.scopes import Place, first_place

CASTS = ("QUANTIZE", "DEQUANTIZE")


@dataclass(frozen=True)
class Node:
    """An op: its builtin name, tensors by index, and place in the model."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    place: Place


@dataclass(frozen=True)
class Scale:
    """How integers of an activation stand for numbers: value = scale * (q - zero)."""

    scale: float
    zero: int
    dtype: np.dtype[Any]

    def quantized(self, values: Array) -> Array:
        """Return the nearest integers within the dtype's range."""
        limits = np.iinfo(self.dtype)
        steps = np.rint(values.astype(np.float64) / self.scale) + self.zero
        found: Array = np.clip(steps, limits.min, limits.max).astype(self.dtype)
        return found

    def value(self, integers: Array) -> Array:
        """Return what integers stand for."""
        wide = integers.astype(np.float64) - self.zero
        found: Array = (wide * self.scale).astype(np.float32)
        return found


@dataclass(frozen=True)
class Graph:
    """A signature of a flatbuffer, as the object API of its schema has it.

    Attributes:
        model: the whole file; subgraph: of the signature; definition: likewise.
        nodes: in the order of execution.
    """

    model: Any
    subgraph: Any
    definition: Any
    nodes: tuple[Node, ...]

    @property
    def inputs(self) -> Mapping[str, int]:
        """Tensors of the signature's inputs, by name."""
        return {i.name.decode(): i.tensorIndex for i in self.definition.inputs}

    @property
    def outputs(self) -> Mapping[str, int]:
        """Tensors of the signature's outputs, by name."""
        return {o.name.decode(): o.tensorIndex for o in self.definition.outputs}

    def is_constant(self, tensor: int) -> bool:
        """Whether a tensor's values are in the file."""
        return self.model.buffers[self.subgraph.tensors[tensor].buffer].data is not None

    def is_float(self, tensor: int) -> bool:
        """Whether a tensor is float32."""
        return bool(self.subgraph.tensors[tensor].type == 0)

    def constant(self, tensor: int) -> Array:
        """Return the values of a float32 constant, in its shape."""
        found = self.subgraph.tensors[tensor]
        data = bytes(self.model.buffers[found.buffer].data)
        shape = () if found.shape is None else tuple(map(int, found.shape))
        return np.frombuffer(data, np.float32).reshape(shape)

    def scale_of(self, tensor: int) -> Scale | None:
        """Return how a quantized activation is read; None for plain numbers."""
        found = self.subgraph.tensors[tensor]
        dtype = _INTEGERS.get(found.type)
        quantization = found.quantization
        if dtype is None or quantization is None or quantization.scale is None:
            return None
        zero = quantization.zeroPoint
        return Scale(
            float(quantization.scale[0]), int(zero[0]) if zero is not None else 0, dtype
        )


_INTEGERS: dict[int, np.dtype[Any]] = {
    3: np.dtype("uint8"),
    7: np.dtype("int16"),
    9: np.dtype("int8"),
}


def read_graph(path: Path, signature: str) -> Graph:
    """Read a signature of a .tflite."""
    model = read_model(path)
    definition = next(
        d for d in model.signatureDefs if d.signatureKey.decode() == signature
    )
    subgraph = model.subgraphs[definition.subgraphIndex]
    return Graph(model, subgraph, definition, nodes_of(model, subgraph))


def read_model(path: Path) -> Any:
    """Read a .tflite, as the object API of its schema has it."""
    from ai_edge_litert import schema_py_generated as schema

    data = path.read_bytes()
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    hold_inside(model, data)
    return model


def nodes_of(model: Any, subgraph: Any) -> tuple[Node, ...]:
    """Return the ops of a subgraph, in the order of execution."""
    return tuple(_node(model, subgraph, op) for op in subgraph.operators)


def hold_inside(model: Any, data: bytes) -> None:
    """Give buffers that lie behind the flatbuffer (from 256 KB on, of a quantizer) their bytes."""
    file = np.frombuffer(data, np.uint8)
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = file[buffer.offset : buffer.offset + buffer.size]
            buffer.offset = buffer.size = 0


def _node(model: Any, subgraph: Any, operator: Any) -> Node:
    code = model.operatorCodes[operator.opcodeIndex]
    inputs = tuple(int(i) for i in operator.inputs if i >= 0)
    outputs = tuple(int(i) for i in operator.outputs)
    names = [subgraph.tensors[i].name.decode() for i in (*outputs, *reversed(inputs))]
    return Node(_name(code), inputs, outputs, first_place(names))


def _name(code: Any) -> str:
    from ai_edge_litert import schema_py_generated as schema

    if code.customCode:
        return f"CUSTOM {code.customCode.decode()}"
    value = max(code.builtinCode, code.deprecatedBuiltinCode)
    names = vars(schema.BuiltinOperator).items()
    return next((name for name, number in names if number == value), f"op {value}")


def widened(graph: Graph) -> dict[int, int]:
    """Return, for tensors that hold a constant of integers as floats, that constant."""
    found: dict[int, int] = {}
    for node in graph.nodes:
        sources = [t for t in node.inputs if t in found]
        fixed = all(t in found or graph.is_constant(t) for t in node.inputs)
        if node.name == "DEQUANTIZE" and fixed:
            found[node.outputs[0]] = node.inputs[0]
        elif node.name in ("MUL", "RESHAPE") and fixed and sources:
            found[node.outputs[0]] = found[sources[0]]
    return found


def fork(graph: Graph) -> Graph:
    """Return a copy whose ops, tensors and signature can be changed; weights are shared."""
    model = copy.copy(graph.model)
    subgraph, definition = copy.copy(graph.subgraph), copy.copy(graph.definition)
    subgraph.tensors = list(graph.subgraph.tensors)
    subgraph.operators = [copy.copy(op) for op in graph.subgraph.operators]
    model.operatorCodes = list(graph.model.operatorCodes)
    model.subgraphs = list(graph.model.subgraphs)
    model.subgraphs[graph.definition.subgraphIndex] = subgraph
    model.signatureDefs = [definition]
    return Graph(model, subgraph, definition, graph.nodes)


def whole_fork(graph: Graph) -> Graph:
    """Return a copy as `fork` does, of a file that keeps its other signatures."""
    result = fork(graph)
    result.model.signatureDefs = list(graph.model.signatureDefs)
    result.model.buffers = list(graph.model.buffers)
    return result


def cast(graph: Graph, value: int, into: int) -> Any:
    """Return a QUANTIZE of a forked graph: of floats, or from integers to others."""
    return operator(graph, "QUANTIZE", [value], [into], version=2)


def operator(
    graph: Graph,
    name: str,
    inputs: Sequence[int],
    outputs: Sequence[int],
    *,
    version: int = 1,
) -> Any:
    """Return an op for a forked graph, without options."""
    from ai_edge_litert import schema_py_generated as schema

    code = schema.OperatorCodeT()
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    code.version = version
    graph.model.operatorCodes.append(code)
    made = schema.OperatorT()
    made.opcodeIndex = len(graph.model.operatorCodes) - 1
    made.inputs, made.outputs = np.array(inputs, np.int32), np.array(outputs, np.int32)
    return made


def pack(graph: Graph, path: Path) -> None:
    """Write the file."""
    write_model(graph.model, path)


def write_model(model: Any, path: Path) -> None:
    """Write a .tflite."""
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    path.write_bytes(builder.Output())
