"""How much of a .tflite is quantized, read back from the file, and why the rest is not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.graph import CASTS, Graph, Node, read_graph, widened
from tpu_export.converters.litert.quantize.recipes import (
    FLOAT,
    FLOAT_IN_STATIC,
    Recipe,
)

# Bits of an element by the schema's TensorType: float32, float16, int32, uint8, int64, …
_BITS = {
    0: 32, 1: 16, 2: 32, 3: 8, 4: 64, 6: 8, 7: 16, 9: 8, 10: 64, 15: 32, 16: 16, 17: 4,
}  # fmt: skip
_NARROW = {1: "float16", 3: "uint8", 7: "int16", 9: "int8", 17: "int4"}


@dataclass(frozen=True)
class OpCoverage:
    """Ops of one kind.

    Attributes:
        formats: number format -> count, of those that are quantized.
        parameters: elements of weights; macs: multiply-accumulates of products and
            convolutions, from the shapes. Both as (quantized, all).
        reason: why not all are quantized; "" where all are.
    """

    op: str
    count: int
    formats: dict[str, int]
    parameters: tuple[int, int]
    macs: tuple[int, int]
    reason: str


@dataclass(frozen=True)
class Coverage:
    """One signature. Sizes are of the weights, in bytes."""

    ops: tuple[OpCoverage, ...]
    plain_bytes: int
    quantized_bytes: int

    @property
    def quantized_ops(self) -> int:
        """How many ops are quantized."""
        return sum(sum(op.formats.values()) for op in self.ops)

    @property
    def total_ops(self) -> int:
        """How many ops the float file has."""
        return sum(op.count for op in self.ops)

    def reasons(self) -> list[str]:
        """Return a line for each kind of op that is not quantized throughout."""
        return [f"{op.op}: {op.reason}" for op in self.ops if op.reason]

    def __str__(self) -> str:
        """Sum it up in a line."""
        parameters = [sum(op.parameters[i] for op in self.ops) for i in (0, 1)]
        macs = [sum(op.macs[i] for op in self.ops) for i in (0, 1)]
        return (
            f"quantized: {self.quantized_ops} of {self.total_ops} ops, "
            f"{_share(*parameters)} of parameters, {_share(*macs)} of multiply-"
            f"accumulates; weights {self.plain_bytes} -> {self.quantized_bytes} bytes"
        )

    def to_json(self) -> dict[str, object]:
        """Return it as JSON-able values."""
        return asdict(self)


def coverage(plain: Path, quantized: Path, signature: str, recipe: Recipe) -> Coverage:
    """Compare a signature of the float file with the quantized file.

    An op of the float file is found again by the name of its first result.
    """
    before, after = read_graph(plain, signature), read_graph(quantized, signature)
    made = {_name(after, node): node for node in after.nodes if node.name not in CASTS}
    kinds: dict[str, list[tuple[Node, str]]] = {}
    for node in before.nodes:
        twin = made.get(_name(before, node))
        kinds.setdefault(node.name, []).append((node, _format(after, twin)))
    ops = tuple(_of_kind(before, name, nodes, recipe) for name, nodes in kinds.items())
    return Coverage(ops, _bytes(before), _bytes(after))


def formats(graph: Graph) -> dict[str, dict[str, int]]:
    """Return how many products and convolutions of each kind have which number format."""
    found: dict[str, dict[str, int]] = {}
    for node in graph.nodes:
        if _macs(graph, node):
            own = found.setdefault(node.name, {})
            name = _format(graph, node) or "float32"
            own[name] = own.get(name, 0) + 1
    return found


def _of_kind(
    graph: Graph, name: str, nodes: list[tuple[Node, str]], recipe: Recipe
) -> OpCoverage:
    formats: dict[str, int] = {}
    parameters, macs, left = [0, 0], [0, 0], []
    for node, found in nodes:
        weights, products = _parameters(graph, node), _macs(graph, node)
        for sums, own in ((parameters, weights), (macs, products)):
            sums[0] += own if found else 0
            sums[1] += own
        if found:
            formats[found] = formats.get(found, 0) + 1
        else:
            left.append(_reason(node, recipe, weights))
    reason = ", ".join(f"{left.count(r)} {r}" for r in dict.fromkeys(left))
    return OpCoverage(
        name, len(nodes), formats, (parameters[0], parameters[1]), (macs[0], macs[1]), reason
    )  # fmt: skip


def _reason(node: Node, recipe: Recipe, parameters: int) -> str:
    number = recipe.rule_of(node.place.module, node.name)
    if number is None or recipe.rules[number].recipe == FLOAT:
        is_ours = number is not None and number >= len(recipe.rules) - recipe.linted
        return f"in float by the {'lint' if is_ours else 'recipe'}"
    if not parameters and not recipe.rules[number].is_static:
        return "without weights"
    if node.name in FLOAT_IN_STATIC:
        return "always compared in float"
    return f"not taken by ai-edge-quantizer as {recipe.rules[number].recipe}"


def _format(graph: Graph, node: Node | None) -> str:
    """Return "int8 x int4" (activations x weights), "int8" without weights, "" for float."""
    if node is None:
        return ""
    weights: set[str] = set()
    activations: set[str] = set()
    for tensor in _sources(graph, node):
        kind = _NARROW.get(graph.subgraph.tensors[tensor].type)
        scaled = graph.subgraph.tensors[tensor].quantization
        if kind and (kind == "float16" or _has_scale(scaled)):
            (weights if graph.is_constant(tensor) else activations).add(kind)
    if not weights and not activations:
        return ""
    sides = (activations or {"float32"}, weights)
    return " x ".join("/".join(sorted(side)) for side in sides if side)


def _sources(graph: Graph, node: Node) -> Iterator[int]:
    """Yield an op's inputs and result, constants before they are widened."""
    constants = widened(graph)
    for tensor in node.inputs:
        yield constants.get(tensor, tensor)
    yield from node.outputs


def _has_scale(quantization: Any) -> bool:
    if quantization is None:
        return False
    return quantization.scale is not None or quantization.details is not None


def _name(graph: Graph, node: Node) -> str:
    return str(graph.subgraph.tensors[node.outputs[0]].name.decode())


def _bytes(graph: Graph) -> int:
    used = {i for node in graph.nodes for i in node.inputs if graph.is_constant(i)}
    tensors = {graph.subgraph.tensors[i].buffer: i for i in used}.values()
    return sum(
        math.ceil(_size(graph, i) * _BITS.get(graph.subgraph.tensors[i].type, 32) / 8)
        for i in tensors
    )


def _size(graph: Graph, tensor: int) -> int:
    shape = graph.subgraph.tensors[tensor].shape
    return math.prod(int(d) for d in shape) if shape is not None else 1


def _parameters(graph: Graph, node: Node) -> int:
    return sum(
        _size(graph, i)
        for i in node.inputs
        if graph.is_constant(i) and graph.is_float(i)
    )


def _macs(graph: Graph, node: Node) -> int:
    """Return an op's multiply-accumulates: elements of the result x terms of each."""
    made = _size(graph, node.outputs[0])
    shapes = [graph.subgraph.tensors[i].shape for i in node.inputs]
    if node.name == "FULLY_CONNECTED":
        return int(made * shapes[1][-1])
    if node.name == "CONV_2D":
        return int(made * math.prod(shapes[1][1:]))
    if node.name == "DEPTHWISE_CONV_2D":
        return int(made * shapes[1][1] * shapes[1][2])
    if node.name == "BATCH_MATMUL":
        return int(_size(graph, node.inputs[0]) * made // max(_rows(shapes[0]), 1))
    return 0


def _rows(shape: Any) -> int:
    """Return the elements of all axes but the last, which the product sums over."""
    return math.prod(int(d) for d in shape[:-1])


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"
