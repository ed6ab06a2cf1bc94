"""Which layer of a quantized .tflite loses what, apart from what the layers before it lost.

A layer is a run of ops of one module, in the order of execution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from tpu_export.converters.litert.graph import Node
from tpu_export.parity.layer_runs import Pair, Sample, read_pair

_INHERITED_DB = 6.0  # half of the amplitude


@dataclass(frozen=True)
class Layer:
    """One layer, its errors in decibels of signal to noise (more is better).

    An input that is integers is a layer without ops.

    Attributes:
        module: path, "" for the root; lines: of its source.
        ops: count of LiteRT ops; first: position of the first one.
        created: with the float file's values as its inputs.
        arrives: at its outputs, when the whole file runs.
        worst: the op that loses most by itself; worst_snr: how much is left.
    """

    module: str
    lines: str
    ops: int
    first: int
    created: float
    arrives: float
    worst: str
    worst_snr: float

    @property
    def inherited(self) -> bool:
        """Whether most of the error came in with the inputs."""
        return self.created > self.arrives + _INHERITED_DB

    def row(self) -> list[str]:
        """Return the cells of a table."""
        return [
            self.module or ("(root)" if self.ops else "(caller)"),
            self.lines,
            db(self.created),
            db(self.arrives),
            "inherited" if self.inherited else "created here",
            f"{self.worst}: {db(self.worst_snr)}",
        ]

    def to_json(self) -> dict[str, object]:
        """Return the layer as JSON-able values; no error at all is null."""
        plain = {**asdict(self), "inherited": self.inherited}
        return {k: None if v == math.inf else v for k, v in plain.items()}


HEADER = ["layer", "lines", "created dB", "arrives dB", "mostly", "worst op, alone"]


def db(value: float) -> str:
    """Return decibels for people: "exact" for no error at all."""
    return "exact" if value == math.inf else f"{value:.1f}"


def table(found: Sequence[Layer]) -> list[list[str]]:
    """Return layers as a table."""
    return [HEADER, *(layer.row() for layer in found)]


def layers(
    plain: Path, quantized: Path, samples: Sequence[Sample], *, signature: str
) -> list[Layer]:
    """Return the layers of a quantized file, the one that loses most by itself first.

    Args:
        plain: the float .tflite that it was quantized from.
        samples: inputs by the names of the signature; all values between ops are kept for
            each of them, so a few are enough.

    Raises:
        LayersDifferError: the files do not hold the same ops.
    """
    return layers_of(read_pair(plain, quantized, signature, samples))


def layers_of(pair: Pair) -> list[Layer]:
    """Return the layers of a pair of files that were read."""
    numbers = _numbers(pair)
    whole, layer, op = (
        pair.whole,
        pair.apart(numbers),
        pair.apart(range(len(numbers))),
    )
    found = []
    for _, run in groupby(range(len(numbers)), key=numbers.__getitem__):
        members = list(run)
        leaving = _leaving(pair, members)
        lost = {i: op.snr(_made(pair, i)) for i in members}
        worst = min(members, key=lost.__getitem__)
        found.append(
            Layer(
                module=_node(pair, members[0]).place.module,
                lines=_lines(pair, members),
                ops=len(members),
                first=members[0],
                created=layer.snr(leaving),
                arrives=whole.snr(leaving),
                worst=f"{_node(pair, worst).name} {_node(pair, worst).place.line}",
                worst_snr=lost[worst],
            )
        )
    return sorted([*_inputs(pair), *found], key=lambda layer: layer.created)


def _inputs(pair: Pair) -> list[Layer]:
    """Return a layer for each input that is integers: what it loses as such."""
    given = pair.given()
    lost = {
        name: given.snr([tensor])
        for name, tensor in pair.plain.inputs.items()
        if pair.plain.is_float(tensor) and pair.integer.scale_of(pair.twins[tensor])
    }
    return [
        Layer("", f"input {name}", 0, 0, snr, snr, "QUANTIZE", snr)
        for name, snr in lost.items()
    ]


def _node(pair: Pair, position: int) -> Node:
    return pair.plain.nodes[pair.order[position]]


def _numbers(pair: Pair) -> list[int]:
    """Return the number of the layer of each op."""
    modules = [_node(pair, i).place.module for i in range(len(pair.order))]
    return [n for n, (_, run) in enumerate(groupby(modules)) for _ in run]


def _made(pair: Pair, position: int) -> list[int]:
    return list(_node(pair, position).outputs)


def _leaving(pair: Pair, members: Sequence[int]) -> list[int]:
    """Return what ops compute for others, or for the caller."""
    inside = {pair.order[i] for i in members}
    used = set(pair.plain.outputs.values())
    for i, node in enumerate(pair.plain.nodes):
        used |= set() if i in inside else set(node.inputs)
    made = [t for i in members for t in _made(pair, i)]
    return [t for t in made if t in used] or made


def _lines(pair: Pair, members: Sequence[int]) -> str:
    """Return "model.py:31-34", or the one line."""
    lines = [_node(pair, i).place.line for i in members]
    files = list(dict.fromkeys(line.rpartition(":")[0] for line in lines))
    numbers = [int(line.rpartition(":")[2]) for line in lines]
    span = (
        f"{min(numbers)}-{max(numbers)}" if len(set(numbers)) > 1 else f"{numbers[0]}"
    )
    return f"{files[0]}:{span}" if len(files) == 1 else ", ".join(dict.fromkeys(lines))
