"""Single ops of a float .tflite, computed by LiteRT's plain float kernels, without XNNPACK."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import Graph


class Kernel:
    """An op of a float file with some constants replaced; it takes the other tensors."""

    def __init__(self, graph: Graph, position: int, held: Mapping[int, Array]) -> None:
        """Prepare an op.

        Args:
            graph: a float file's; position: of the op in it.
            held: values of constants by tensor, in the place of the file's.
        """
        node = graph.nodes[position]
        self.inputs = [
            t for t in dict.fromkeys(node.inputs) if not graph.is_constant(t)
        ]
        blob = _alone(graph, position, self.inputs, held)
        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        self._engine = Interpreter(
            model_content=blob, experimental_op_resolver_type=resolver
        )
        self._engine.allocate_tensors()

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        """Return the results for the tensors of `inputs`."""
        details = self._engine.get_input_details()
        for detail, value in zip(details, values, strict=True):
            self._engine.set_tensor(detail["index"], value.astype(detail["dtype"]))
        self._engine.invoke()
        results = self._engine.get_output_details()
        return [np.array(self._engine.get_tensor(d["index"])) for d in results]


def _alone(
    graph: Graph, position: int, inputs: Sequence[int], held: Mapping[int, Array]
) -> bytes:
    """Return a file that holds an op, its tensors and their values only.

    The subgraphs of a branch stay as they are, with all buffers.
    """
    model, subgraph = copy.copy(graph.model), copy.copy(graph.subgraph)
    operator = copy.copy(graph.subgraph.operators[position])
    given, made = map(list, (operator.inputs, operator.outputs))
    tensors = list(dict.fromkeys(int(t) for t in (*given, *made) if t >= 0))
    place = {t: i for i, t in enumerate(tensors)} | {-1: -1}
    model.buffers = list(graph.model.buffers)
    subgraph.tensors = [_tensor(graph, model, t, held.get(t)) for t in tensors]
    if len(graph.model.subgraphs) == 1:
        _keep_used(model, subgraph)
    subgraph.inputs = np.array([place[t] for t in inputs], np.int32)
    subgraph.outputs = np.array([place[int(t)] for t in made], np.int32)
    operator.inputs = np.array([place[int(t)] for t in given], np.int32)
    operator.outputs = np.array([place[int(t)] for t in made], np.int32)
    subgraph.operators = [operator]
    model.subgraphs = list(graph.model.subgraphs)
    assert graph.definition.subgraphIndex == 0  # what the Interpreter runs
    model.subgraphs[0] = subgraph
    model.signatureDefs, model.metadata = [], []
    return _packed(model)


def _tensor(graph: Graph, model: Any, tensor: int, value: Array | None) -> Any:
    made = copy.copy(graph.subgraph.tensors[tensor])
    if value is not None:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        model.buffers.append(buffer)
        made.buffer = len(model.buffers) - 1
    return made


def _keep_used(model: Any, subgraph: Any) -> None:
    """Leave buffers out that no tensor has; the first one stays, empty."""
    empty = schema.BufferT()
    buffers = [empty]
    for tensor in subgraph.tensors:
        buffer = model.buffers[tensor.buffer]
        tensor.buffer = 0
        if buffer.data is not None:
            tensor.buffer = len(buffers)
            buffers.append(buffer)
    model.buffers = buffers


def _packed(model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
