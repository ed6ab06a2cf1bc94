"""Mask values far below every score, which would take the whole range of 8-bit integers.

A causal mask of -1e9 leaves a scale of 4e6 to the scores it is added to: all of them become 0.
exp(-20) is 2e-9 of the largest weight, which 8 and 16 bits cannot tell from nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpu_export.converters.litert.fold import hold
from tpu_export.converters.litert.graph import (
    Graph,
    Node,
    pack,
    read_graph,
    whole_fork,
)

CLAMP = -20.0
# Below what a softmax can tell from nothing; BERT's mask is -10000.
FAR = -100.0
_HANDED_ON = {
    "ADD",
    "SELECT",
    "SELECT_V2",
    "RESHAPE",
    "BROADCAST_TO",
    "TRANSPOSE",
    "SUB",
}


@dataclass(frozen=True)
class Clamped:
    """What was done to a constant: how many values, the lowest, and where it is used."""

    count: int
    lowest: float
    place: str

    def __str__(self) -> str:
        """Say it in a line."""
        return (
            f"{self.count} mask values (down to {self.lowest:g}) clamped to {CLAMP:g}: "
            f"{self.place}"
        )


def without_far_masks(
    plain: Path, signatures: Iterable[str], folder: Path
) -> tuple[Path, list[str]]:
    """Write a file to a folder with the masks of all signatures clamped; returns what was."""
    found: list[str] = []
    for name in signatures:
        graph = whole_fork(read_graph(plain, name))
        clamped = clamp_masks(graph)
        if clamped:
            plain = folder / f"clamped-{len(found)}.tflite"
            pack(graph, plain)
            found += map(str, clamped)
    return plain, found


def clamp_masks(graph: Graph) -> list[Clamped]:
    """Raise the far values of constants that go into a softmax, in a forked graph."""
    users: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            users.setdefault(tensor, []).append(node)
    found = []
    for tensor, uses in users.items():
        if not (graph.is_constant(tensor) and graph.is_float(tensor)):
            continue
        if not all(_into_softmax(node, users) for node in uses):
            continue
        values = graph.constant(tensor)
        far = values <= FAR
        if far.any():
            lowest, place = float(values.min()), str(uses[0].place)
            hold(graph, tensor, np.where(far, np.float32(CLAMP), values))
            found.append(Clamped(int(far.sum()), lowest, place))
    return found


def _into_softmax(node: Node, users: dict[int, list[Node]]) -> bool:
    """Whether an op is a softmax, or all that it makes goes into one unchanged but for sums."""
    if node.name == "SOFTMAX":
        return True
    following = [user for tensor in node.outputs for user in users.get(tensor, [])]
    return (
        node.name in _HANDED_ON
        and bool(following)
        and all(_into_softmax(user, users) for user in following)
    )
