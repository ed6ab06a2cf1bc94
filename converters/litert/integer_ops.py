"""What became of quantizations that a model has itself: PT2E's, torchao's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tpu_export.converters.litert.flatbuffer import op_histograms
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.stablehlo.program import LoweredProgram


@dataclass(frozen=True)
class IntegerOps:
    """Quantizations of activations, and the ops of the file.

    Attributes:
        integers: how many are integers between ops.
        dynamic: how many LiteRT's kernels make by themselves, with a scale of their own.
        weights: how many weights are stored as the model's integers.
        floats: why others, and weights, are float arithmetic; once for each.
        ops: by signature and op, how many products and convolutions have which number format.
    """

    integers: int = 0
    dynamic: int = 0
    weights: int = 0
    floats: tuple[str, ...] = ()
    ops: Mapping[str, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)

    @property
    def is_quantized(self) -> bool:
        """Whether the model quantizes anything itself."""
        return bool(self.integers or self.dynamic or self.weights or self.floats)

    def lines(self) -> list[str]:
        """Say it in words; nothing of a model that is not quantized."""
        if not self.is_quantized:
            return []
        made = f"{self.dynamic} made by its kernels, " if self.dynamic else ""
        left = f"{len(self.floats)} in float arithmetic"
        said = [
            f"quantizations of the model: {self.integers} integers in the file, {made}{left}; "
            f"{self.weights} weights of integers"
        ]
        for name, ops in self.ops.items():
            kinds = [f"{n} {op} {k}" for op, own in ops.items() for k, n in own.items()]
            said.append(f"{name}: {', '.join(kinds) or 'no products'}")
        counts = {why: self.floats.count(why) for why in self.floats}
        said += [f"in float arithmetic: {n} x {why}" for why, n in counts.items()]
        return said


def read_integers(path: Path, programs: Iterable[LoweredProgram]) -> IntegerOps:
    """Return what the conversion of a file found, and the file's own formats.

    Args:
        path: of the file. programs: which it was made of.
    """
    from tpu_export.converters.litert.quantize.coverage import formats

    # Of a file for any size there are several conversions, with the same ops.
    reports = sorted(path.parent.rglob("integers.json"))
    found = json.loads(reports[0].read_text())
    found["floats"] += [why for program in programs for why in program.floats]
    if not any(found.values()):
        return IntegerOps()
    return IntegerOps(
        found["integers"],
        found["dynamic"],
        found["weights"],
        tuple(found["floats"]),
        {name: formats(read_graph(path, name)) for name in op_histograms(path)},
    )
