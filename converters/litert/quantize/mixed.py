"""Tensors that are outputs of a file and used by its ops as well: ai-edge-quantizer mixes them up.

The tensor is widened for the output, and an op may be given the widened numbers while its result
is of integers: LiteRT computes nonsense there, or does not load the file. Here the op gets the
integers. Or the file gives out integers, rounded for an op, in the place of numbers: here it gives
the widened ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.graph import (
    CASTS,
    Graph,
    Node,
    pack,
    read_graph,
    whole_fork,
)
from tpu_export.converters.litert.quantize.errors import QuantizerFailedError

_INTEGERS = (3, 7, 9)  # of the schema's TensorType: uint8, int16, int8


def keep_apart(path: Path, signatures: Sequence[str], *, floats: bool) -> None:
    """Rewrite a quantized file where ops of integers take floats, or outputs are mixed up.

    Args:
        path: the file; signatures: all that it has.
        floats: whether its outputs are float32 where they are not integers of the model.

    Raises:
        QuantizerFailedError: an op takes both, and there are no integers to give it.
    """
    for name in signatures:
        graph = whole_fork(read_graph(path, name))
        changed = [_give_integers(graph, i) for i in range(len(graph.nodes))]
        if floats:
            changed.append(_give_floats(graph))
        if any(changed):
            pack(graph, path)


def _give_integers(graph: Graph, position: int) -> bool:
    """Let an op of integers take integers; returns whether it did not."""
    node, operator = graph.nodes[position], graph.subgraph.operators[position]
    mixed = _floats_among_integers(graph, node)
    for tensor in mixed:
        source = next(
            (n.inputs[0] for n in graph.nodes if _widens(n) and tensor in n.outputs),
            None,
        )
        if source is None:
            raise QuantizerFailedError(
                f"ai-edge-quantizer lets {node.place} compute floats with integers",
                hint="give that module dynamic-int8 or float in a recipe.toml",
            )
        operator.inputs = _replaced(operator.inputs, {tensor: source})
    return bool(mixed)


def _give_floats(graph: Graph) -> bool:
    """Let the signature give floats where it gives integers that are widened beside."""
    tensors = graph.subgraph.tensors
    wide = {n.inputs[0]: n.outputs[0] for n in graph.nodes if _widens(n)}
    rounded = {
        n.outputs[0]: n.inputs[0]
        for n in graph.nodes
        if n.name == "QUANTIZE" and _is_scaled(tensors[n.inputs[0]])
    }
    wide |= {new: wide[old] for new, old in rounded.items() if old in wide}
    entries = [e for e in graph.definition.outputs if e.tensorIndex in wide]
    for entry in entries:
        entry.tensorIndex = wide[entry.tensorIndex]
    if entries:
        graph.subgraph.outputs = _replaced(graph.subgraph.outputs, wide)
    return bool(entries)


def _widens(node: Node) -> bool:
    return node.name == "DEQUANTIZE"


def _replaced(tensors: Any, by: Mapping[int, int]) -> Any:
    """Return the tensors of an op or a file, some in the place of others."""
    return np.array([by.get(int(t), int(t)) for t in tensors], np.int32)


def _floats_among_integers(graph: Graph, node: Node) -> list[int]:
    """Return the activations in float of an op that has integers, and no result in float.

    An op that scales its input at each call has a result in float.
    """
    tensors = graph.subgraph.tensors
    if node.name in CASTS or any(graph.is_float(t) for t in node.outputs):
        return []
    if not any(_is_scaled(tensors[t]) for t in (*node.inputs, *node.outputs)):
        return []
    return [t for t in dict.fromkeys(node.inputs) if graph.is_float(t)]


def _is_scaled(tensor: Any) -> bool:
    quantization = tensor.quantization
    has_scale = quantization is not None and quantization.scale is not None
    return tensor.type in _INTEGERS and has_scale
