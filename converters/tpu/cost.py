"""The cost report of one executable: the compiler's estimates, no measurement."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from tpu_export.converters.tpu.chips import CHIPS, Chip
from tpu_export.converters.tpu.hlo import Cost, Costs
from tpu_export.runtime.errors import counted

COMPILER: Final = "(inserted by the compiler)"

# The scope that lowering gives each op: module.path/aten.op.overload/file.py:line,
# anywhere in an op_name. A module path may look like an op ("encoder.act"), so
# namespaces are spelled out.
_PLACE: Final = re.compile(
    r"(?P<module>[^/]*)/"
    r"(?P<op>(?:aten|prims|prim|higher_order|math|_?operator|builtins)\.[\w.]+|\w+\.\w+\.default)/"
    r"(?P<source>[^:]*:\d+)(?:/|$)"
)


@dataclass(frozen=True)
class PlaceCost:
    """Estimated cycles of one ATen op at one place of the model."""

    module: str
    op: str
    source: str
    cycles: float


@dataclass(frozen=True)
class Memory:
    """Bytes of HBM that one execution holds.

    total = arguments + outputs - alias + temp + code.

    `available` is what the device has; a program that needs more does not compile.
    """

    arguments: int
    outputs: int
    alias: int
    temp: int
    code: int
    available: int

    @property
    def total(self) -> int:
        """What one execution holds."""
        return self.arguments + self.outputs - self.alias + self.temp + self.code


@dataclass(frozen=True)
class CostReport:
    """What the compiler estimates for one executable on one chip; nothing is measured.

    Attributes:
        topology: libtpu's name of the slice; the program uses one device of it.
        generation: the chip, whose clock and peaks are in chips.CHIPS.
        memory: HBM against what the device has.
        flops: floating-point operations of one call; loop bodies count once.
        bytes_accessed: bytes that instructions read and write; loop bodies count once.
        cycles: sum of estimated cycles, loop bodies as often as they run.
        seconds: cycles / clock.
        places: cycles by module, op and source line, dearest first; their sum is
            `cycles`.
        rooflines: cycles by kind of instruction that the compiler gives no estimate
            for: bytes over HBM bandwidth instead. Included in `cycles`.
        unknown_loops: loops whose trip count is not known; their bodies count once.
    """

    topology: str
    generation: str
    memory: Memory
    flops: float
    bytes_accessed: float
    cycles: float
    seconds: float
    places: tuple[PlaceCost, ...]
    rooflines: Mapping[str, float]
    unknown_loops: int

    @property
    def note(self) -> str:
        """Say in a sentence what the figures are."""
        chip = CHIPS[self.generation]
        words = [
            "compiler's estimate for one chip, not a measurement",
            f"{chip.clock_hz / 1e9:g} GHz ({chip.clock_source})",
        ]
        if self.rooflines:
            words.append(f"roofline for {', '.join(sorted(self.rooflines))}")
        if self.unknown_loops:
            words.append(
                f"{counted(self.unknown_loops, 'loop')} of unknown length counted once"
            )
        return "; ".join(words)

    def by_module(self, depth: int | None = None) -> dict[str, float]:
        """Return cycles by module path, dearest first; `depth` cuts the paths."""
        totals: dict[str, float] = defaultdict(float)
        for place in self.places:
            totals[".".join(place.module.split(".")[:depth])] += place.cycles
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def by_op(self) -> dict[str, float]:
        """Return cycles by ATen op, dearest first."""
        totals: dict[str, float] = defaultdict(float)
        for place in self.places:
            totals[place.op] += place.cycles
        return dict(sorted(totals.items(), key=lambda item: -item[1]))

    def to_json(self) -> dict[str, object]:
        """Return plain data for json."""
        return {
            **asdict(self),
            "places": [list(asdict(p).values()) for p in self.places],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CostReport:
        """Rebuild what to_json gave."""
        places = tuple(PlaceCost(*row) for row in data["places"])
        return cls(**{**data, "memory": Memory(**data["memory"]), "places": places})


def cost_report(
    topology: str,
    generation: str,
    memory: Memory,
    analysis: Mapping[str, float],
    costs: Costs,
) -> CostReport:
    """Add up what the compiler says about one executable."""
    cycles = sum(cost.cycles for cost in costs.instructions)
    rooflines: dict[str, float] = defaultdict(float)
    for cost in costs.instructions:
        if cost.kind == "roofline":
            rooflines[cost.what] += cost.cycles
    return CostReport(
        topology=topology,
        generation=generation,
        memory=memory,
        flops=max(analysis.get("flops", 0.0), 0.0),
        bytes_accessed=max(analysis.get("bytes accessed", 0.0), 0.0),
        cycles=cycles,
        seconds=cycles / CHIPS[generation].clock_hz,
        places=_places(costs.instructions),
        rooflines=dict(rooflines),
        unknown_loops=costs.unknown_loops,
    )


def roofline(analysis: Mapping[str, float], chip: Chip) -> Costs:
    """Return a bound for a whole program whose instructions cannot be read."""
    seconds = max(
        analysis.get("flops", 0.0) / (chip.peak_flops / chip.devices),
        analysis.get("bytes accessed", 0.0)
        / (chip.hbm_bytes_per_second / chip.devices),
    )
    whole = Cost("", seconds * chip.clock_hz, "roofline", "the whole program")
    return Costs((whole,), 0)


def place(op_name: str) -> tuple[str, str, str]:
    """Return module path, op and source line of an instruction's op_name.

    >>> place("jit(call)/encoder.layer.0/aten.gelu.default/model.py:35/mul")
    ('encoder.layer.0', 'aten.gelu.default', 'model.py:35')
    """
    matches = list(_PLACE.finditer(op_name))
    if not matches:
        return (COMPILER, "", "")
    return matches[-1]["module"], matches[-1]["op"], matches[-1]["source"]


def _places(instructions: tuple[Cost, ...]) -> tuple[PlaceCost, ...]:
    totals: dict[tuple[str, str, str], float] = defaultdict(float)
    for cost in instructions:
        module, op, source = place(cost.op_name)
        totals[module, op or cost.what, source] += cost.cycles
    rows = (PlaceCost(*where, cycles) for where, cycles in totals.items())
    return tuple(
        sorted(rows, key=lambda row: (-row.cycles, row.module, row.op, row.source))
    )
