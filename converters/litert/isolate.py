"""A .tflite rewritten so that one run shows what each part makes of inputs given to it.

`tapped` gives out what every op computes. `isolated` also cuts the graph between groups of ops,
and takes each tensor that crosses a cut as an input: no group sees the errors of another.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.engines import Calls, run_calls
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import CASTS, Graph, cast, fork, pack, widened


def computed(graph: Graph) -> list[int]:
    """Return the positions of the ops that are no mere casts to and from integers."""
    weights = widened(graph)
    return [
        i
        for i, node in enumerate(graph.nodes)
        if node.name not in CASTS and node.outputs[0] not in weights
    ]


def origins(graph: Graph) -> dict[int, int]:
    """Return, for what a cast made, the tensor that it was before any cast."""
    found = widened(graph)
    for node in graph.nodes:
        if node.name in CASTS:
            found[node.outputs[0]] = found.get(node.inputs[0], node.inputs[0])
    return found


def tapped(graph: Graph) -> Graph:
    """Return the graph with the result of every op as an output "t<tensor>"."""
    result = fork(graph)
    name_outputs(result, (t for i in computed(graph) for t in graph.nodes[i].outputs))
    return result


@dataclass
class _Cut:
    """What crosses: the new float input and, where it is quantized, the integers."""

    graph: Graph
    fed: dict[int, int] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    casts: list[Any] = field(default_factory=list)

    def source(self, tensor: int, origin: int) -> int:
        """Return the tensor that stands for one that crosses."""
        if tensor not in self.made:
            self.made[tensor] = self._made(tensor, origin)
        return self.made[tensor]

    def _made(self, tensor: int, origin: int) -> int:
        quantized = self.graph.scale_of(tensor) is not None
        if not quantized:
            return self._feed(origin, tensor)
        value = self._feed(origin, tensor)
        new = self._add(tensor, f"q{tensor}", {})
        self.casts.append(cast(self.graph, value, new))
        return new

    def _feed(self, origin: int, like: int) -> int:
        if origin not in self.fed:
            plain = (
                {"type": 0, "quantization": None}
                if self.graph.scale_of(like) is not None
                else {}
            )
            self.fed[origin] = self._add(like, f"f{origin}", plain)
        return self.fed[origin]

    def _add(self, like: int, name: str, changed: Mapping[str, object]) -> int:
        tensors = self.graph.subgraph.tensors
        new = copy.copy(tensors[like])
        new.name, new.buffer = name.encode(), 0
        for key, value in changed.items():
            setattr(new, key, value)
        tensors.append(new)
        return len(tensors) - 1


def isolated(graph: Graph, groups: Sequence[int]) -> tuple[Graph, list[int]]:
    """Cut a graph between groups of ops.

    Args:
        groups: of each op of `computed(graph)`.

    Returns:
        The graph, and the tensors it takes besides its own inputs: as inputs "f<tensor>", in
        float32 where they are quantized.
    """
    result = fork(graph)
    order = computed(graph)
    maker = {
        t: group
        for i, group in zip(order, groups, strict=True)
        for t in graph.nodes[i].outputs
    }
    origin = origins(graph)
    cut = _Cut(result)
    for i, group in zip(order, groups, strict=True):
        operator = result.subgraph.operators[i]
        operator.inputs = np.array(
            [
                cut.source(t, origin.get(t, t))
                if t >= 0
                and not graph.is_constant(origin.get(t, t))
                and maker.get(origin.get(t, t)) != group
                else t
                for t in map(int, operator.inputs)
            ],
            np.int32,
        )
    result.subgraph.operators[:0] = cut.casts
    _name_inputs(result, cut.fed)
    name_outputs(result, (t for i in order for t in graph.nodes[i].outputs))
    return result, list(cut.fed)


def _name_inputs(graph: Graph, fed: Mapping[int, int]) -> None:
    new = [_entry(f"f{tensor}", index) for tensor, index in fed.items()]
    graph.definition.inputs = [*graph.definition.inputs, *new]
    graph.subgraph.inputs = np.array([*graph.subgraph.inputs, *fed.values()], np.int32)


def name_outputs(graph: Graph, tensors: Iterable[int]) -> None:
    """Make tensors the outputs of a forked graph, named "t<tensor>"."""
    found = list(dict.fromkeys(tensors))
    graph.definition.outputs = [_entry(f"t{t}", t) for t in found]
    graph.subgraph.outputs = np.array(found, np.int32)


def tensor_values(
    graph: Graph, calls: Sequence[Mapping[str, Array]]
) -> list[dict[int, Array]]:
    """Run a graph with such outputs in the Interpreter; returns them by tensor, for each call."""
    name = graph.definition.signatureKey.decode()
    with tempfile.TemporaryDirectory(prefix="tpu-export-tensors-") as folder:
        path = Path(folder) / "cut.tflite"
        pack(graph, path)
        (found,) = run_calls(path, "interpreter", [Calls(name, calls)])
    return [{int(key[1:]): value for key, value in run.items()} for run in found]


def _entry(name: str, tensor: int) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name.encode(), tensor
    return entry
