"""What one grid of 8 bits spoils: layer norms, attention, the sums before them, and outliers.

Of a norm or an attention each small step would be rounded, and sums of a residual stream carry
what they lose to the end: these stay in float whatever the data. Outliers are measured. A product
with weights then scales its input at each call, other ops stay in float.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from tpu_export.converters.litert.graph import Graph, Node
from tpu_export.converters.litert.quantize.findings import Finding
from tpu_export.converters.litert.quantize.noise import (
    Values,
    product_left,
    snr_left,
    together,
)
from tpu_export.converters.litert.quantize.recipes import FLOAT

# Two of 8 bits lost: numbers spread evenly or normally keep 38 dB and more.
_OUTLIERS_DB = 26.0
_SCALED_AT_RUN = {"FULLY_CONNECTED", "CONV_2D"}
_STEPS = {
    "ADD", "DIV", "MEAN", "MUL", "POW", "RSQRT", "SQRT", "SQUARE", "SQUARED_DIFFERENCE",
    "SUB", "SUM",
}  # fmt: skip
_MOVES = {"RESHAPE", "TRANSPOSE", "SLICE", "BROADCAST_TO", "PAD", "CONCATENATION"}
_SAME = _MOVES | {
    "GATHER", "GATHER_ND", "MAXIMUM", "MINIMUM", "REDUCE_MAX", "REDUCE_MIN", "SELECT",
    "SELECT_V2", "STRIDED_SLICE",
}  # fmt: skip
_SCORES = {"ADD", "DIV", "MUL", "SELECT", "SELECT_V2", "SUB"}


@dataclass
class Activations:
    """A float graph, what its ops compute, and what int8 leaves of that."""

    graph: Graph
    values: Values
    left: Mapping[int, float] = field(init=False)
    made: Mapping[int, Node] = field(init=False)
    users: Mapping[int, list[Node]] = field(init=False)

    def __post_init__(self) -> None:
        self.left = snr_left(self.graph, self.values)
        self.made = {t: n for n in self.graph.nodes for t in n.outputs}
        users: dict[int, list[Node]] = {}
        for node in self.graph.nodes:
            for tensor in node.inputs:
                users.setdefault(tensor, []).append(node)
        self.users = users

    def findings(self) -> Iterator[Finding]:
        """Yield what should not be int8; of an op found twice, the first counts."""
        yield from self._products()
        for tensor, left in self.left.items():
            if left < _OUTLIERS_DB:
                why = self._outliers(tensor)
                for node in self._around(tensor):
                    yield _finding("outliers", node, left, why)
        norms = self._norms()
        yield from self._kept("layer norm", norms, "each step would be rounded")
        kept = {t for part in norms for node in part for t in node.inputs}
        for node in self.graph.nodes:
            if node.name == "ADD" and set(node.outputs) & kept:
                left = self.left.get(node.outputs[0], np.inf)
                yield _finding("sum", node, left, "a layer norm follows")
        yield from self._kept(
            "softmax", self._attentions(), "each step would be rounded"
        )
        why = "numbers of different steps are never equal"
        yield from self._kept("comparison", self._comparisons(), why)

    def _products(self) -> Iterator[Finding]:
        """Yield products that large channels of the input spoil, and what makes that input."""
        for node in self.graph.nodes:
            if node.name != "FULLY_CONNECTED" or node.inputs[0] not in self.values:
                continue
            data, weight = node.inputs[:2]
            if not (self.graph.is_constant(weight) and self.graph.is_float(weight)):
                continue
            rows, values = self.graph.constant(weight), self.values[data]
            left = product_left(values, rows)
            if left >= _OUTLIERS_DB:
                continue
            why = "large channels of its input"
            own = product_left(values, rows, of_rows=True)
            recipe = "dynamic-int8" if own >= _OUTLIERS_DB else "weight-int8"
            yield replace(_finding("outliers", node, left, why), recipe=recipe)
            if data in self.made:
                why = "large channels, which a product reads"
                yield _finding("outliers", self.made[data], left, why)

    def _kept(
        self, kind: str, parts: Sequence[Sequence[Node]], why: str
    ) -> Iterator[Finding]:
        for part in parts:
            left = self._together(part)
            for node in part:
                yield _finding(kind, node, left, why)

    def _together(self, part: Sequence[Node]) -> float:
        return together(
            [self.left[t] for n in part for t in n.outputs if t in self.left]
        )

    def _around(self, tensor: int) -> list[Node]:
        maker = [self.made[tensor]] if tensor in self.made else []
        return [*maker, *self.users.get(tensor, [])]

    def _norms(self) -> list[list[Node]]:
        """Return the steps of each module with a reciprocal root."""
        modules = {n.place.module for n in self.graph.nodes if n.name == "RSQRT"}
        parts: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            if node.place.module in modules and node.name in _STEPS | _MOVES:
                parts.setdefault(node.place.module, []).append(node)
        return list(parts.values())

    def _attentions(self) -> list[list[Node]]:
        """Return each softmax with the scores before and the product after it."""
        return [
            [*self._makers(node), node, *self._readers(node)]
            for node in self.graph.nodes
            if node.name == "SOFTMAX"
        ]

    def _comparisons(self) -> list[list[Node]]:
        """Return what hands the numbers on that are compared to be the same."""
        return [
            _reached(node, self._before, _SAME)
            for node in self.graph.nodes
            if node.name in ("EQUAL", "NOT_EQUAL")
        ]

    def _makers(self, softmax: Node) -> list[Node]:
        """Return the ops that make scores, from their product on."""
        return _reached(softmax, self._before, _SCORES | _MOVES, {"BATCH_MATMUL"})

    def _before(self, node: Node) -> list[Node]:
        return [self.made[t] for t in node.inputs if t in self.made and t in self.left]

    def _readers(self, softmax: Node) -> list[Node]:
        """Return the products of probabilities."""

        def after(node: Node) -> list[Node]:
            return [u for t in node.outputs for u in self.users.get(t, [])]

        return _reached(softmax, after, _MOVES, {"BATCH_MATMUL"})

    def _outliers(self, tensor: int) -> str:
        """Say whether a few channels take the grid, or a few values."""
        rows = [
            v.reshape(-1, v.shape[-1] if v.ndim else 1) for v in self.values[tensor]
        ]
        tops = np.abs(np.concatenate(rows)).max(0)
        if not np.isfinite(tops).all():
            return "values that are not finite"
        large = int((tops > tops.max() / 4).sum())
        return f"large {'channels' if large <= tops.size / 8 else 'values'}"


def _reached(
    start: Node,
    following: Callable[[Node], list[Node]],
    through: Set[str],
    last: Set[str] = frozenset(),
) -> list[Node]:
    """Return the ops that are reached through ops of some kinds, and `last` behind them."""
    found: dict[Node, None] = {}
    waiting = following(start)
    while waiting:
        node = waiting.pop()
        if node in found or node.name not in through | last:
            continue
        found[node] = None
        waiting += following(node) if node.name in through else []
    return list(found)


def _finding(kind: str, node: Node, left: float, why: str) -> Finding:
    is_product = node.name in _SCALED_AT_RUN
    recipe = "dynamic-int8" if is_product else FLOAT
    return Finding(kind, node.place.module, node.name, 1, recipe, left, why)
