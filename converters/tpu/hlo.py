"""Read the compiler's cycle estimates out of optimized HLO text.

One pass over the lines. Instructions carry ``"estimated_cycles":"N"`` in their
backend_config and the place they came from in ``op_name``. The cycles of a computation
are those of its instructions plus those of the computations they call: a while body as
often as it runs, a conditional's dearest branch, a fusion's body never (the fusion
states the total).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

_COMPUTATION: Final = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION: Final = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
# Types are upper case or bracketed: the first lower-case word before "(" is the opcode.
_OPCODE: Final = re.compile(r"(?:^|\s)([a-z][\w\-]*)\(")
_CYCLES: Final = re.compile(r'"estimated_cycles":"(\d+)"')
_OP_NAME: Final = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_CALLED: Final = re.compile(r"\b(body|condition|to_apply|calls)=%?([\w.\-]+)")
_BRANCHES: Final = re.compile(r"branch_computations=\{([^}]*)\}")
_BRANCH_PAIR: Final = re.compile(r"(?:true|false)_computation=%?([\w.\-]+)")
_CONSTANT: Final = re.compile(r"^[su]\d+\[\]\S* constant\((\d+)\)")
_TARGET: Final = re.compile(r'custom_call_target="([^"]*)"')
_NAME: Final = re.compile(r"%([\w.\-]+)")
_ARRAY: Final = re.compile(r"\b([a-z]+\d*[a-z0-9]*)\[([\d,<=]*)\]")

# Opcodes that can be dear but that libtpu gives no cycles.
_WITHOUT_ESTIMATE: Final = {
    "custom-call",
    "sort",
    "scatter",
    "rng-bit-generator",
    "fft",
}
# Custom calls that only name memory: no work.
_FREE_TARGETS: Final = {
    "AllocateBuffer",
    "AssumeGatherIndicesInBound",
    "ConcatBitcast",
    "Sharding",
}
# How 64-bit values enter and leave a program: names for halves, not work.
_FREE_PREFIX: Final = "X64"


@dataclass(frozen=True)
class Cost:
    """The cycles of one instruction, as often as it runs.

    Attributes:
        op_name: the place in the instruction's metadata; "" when the compiler made it.
        cycles: estimated cycles.
        kind: "compiler", or "roofline" (bytes over HBM bandwidth) where it has no
            figure.
        what: the opcode, or a custom call's target.
    """

    op_name: str
    cycles: float
    kind: Literal["compiler", "roofline"]
    what: str


@dataclass(frozen=True)
class Costs:
    """The instructions of a module with their cycles, and what is uncertain about them.

    Attributes:
        instructions: every instruction that has a cost.
        unknown_loops: while loops whose trip count is not in the text; bodies count
            once.
    """

    instructions: tuple[Cost, ...]
    unknown_loops: int


@dataclass
class _Computation:
    costs: list[Cost] = field(default_factory=list)
    calls: list[tuple[str, int]] = field(default_factory=list)  # (computation, times)
    choices: list[list[str]] = field(
        default_factory=list
    )  # branches of each conditional
    constant: int = 0  # the largest integer: a loop condition's bound
    unknown_loops: int = 0


def hlo_costs(text: str, *, bytes_per_cycle: float) -> Costs:
    """Return what each instruction that runs costs, multiplied by how often it runs.

    Args:
        text: optimized HLO, as a compiled program prints it.
        bytes_per_cycle: HBM bytes a cycle, for instructions without an estimate.
    """
    reader = _Reader(bytes_per_cycle)
    for line in text.splitlines():
        reader.read(line)
    runs = _runs(reader.computations, reader.entry)
    instructions = tuple(
        Cost(cost.op_name, cost.cycles * runs[name], cost.kind, cost.what)
        for name, computation in reader.computations.items()
        if runs[name]
        for cost in computation.costs
    )
    unknown = sum(
        c.unknown_loops for name, c in reader.computations.items() if runs[name]
    )
    return Costs(instructions, unknown)


def _runs(computations: dict[str, _Computation], entry: str) -> Mapping[str, int]:
    """Return how often each computation runs; HLO prints callees before callers."""
    totals: dict[str, float] = defaultdict(float)
    for name, computation in computations.items():
        totals[name] = (
            sum(cost.cycles for cost in computation.costs)
            + sum(times * totals[callee] for callee, times in computation.calls)
            + sum(
                max(totals[branch] for branch in choice)
                for choice in computation.choices
            )
        )
    runs: dict[str, int] = defaultdict(int, {entry: 1})
    for name in reversed(computations):
        for callee, times in computations[name].calls:
            runs[callee] += runs[name] * times
        for choice in computations[name].choices:
            runs[max(choice, key=lambda branch: totals[branch])] += runs[name]
    return runs


@dataclass
class _Reader:
    bytes_per_cycle: float
    computations: dict[str, _Computation] = field(default_factory=dict)
    entry: str = ""
    current: _Computation = field(default_factory=_Computation)
    sizes: dict[str, int] = field(
        default_factory=dict
    )  # bytes of each value in `current`

    def read(self, line: str) -> None:
        if match := _COMPUTATION.match(line):
            self.current = self.computations[match[2]] = _Computation()
            self.sizes = {}
            self.entry = match[2] if match[1] else self.entry
        elif match := _INSTRUCTION.match(line):
            self._instruction(match[1], match[2])

    def _instruction(self, name: str, text: str) -> None:
        if constant := _CONSTANT.match(text):
            self.current.constant = max(self.current.constant, int(constant[1]))
        opcode = _OPCODE.search(text)
        if opcode is None:
            return
        result, rest = text[: opcode.start()], text[opcode.end() :]
        self.sizes[name] = _bytes(result)
        op_name = match[1] if (match := _OP_NAME.search(rest)) else ""
        if cycles := _CYCLES.search(rest):
            self.current.costs.append(
                Cost(op_name, float(cycles[1]), "compiler", opcode[1])
            )
        elif opcode[1] in _WITHOUT_ESTIMATE:
            self._roofline(name, opcode[1], rest, op_name)
        self._calls(opcode[1], rest)

    def _roofline(self, name: str, opcode: str, rest: str, op_name: str) -> None:
        what = match[1] if (match := _TARGET.search(rest)) else opcode
        operands = _NAME.findall(rest[: rest.find(")")])
        moved = self.sizes[name] + sum(self.sizes.get(x, 0) for x in operands)
        if what not in _FREE_TARGETS and not what.startswith(_FREE_PREFIX):
            cost = Cost(op_name, moved / self.bytes_per_cycle, "roofline", what)
            self.current.costs.append(cost)

    def _calls(self, opcode: str, rest: str) -> None:
        called = dict(_CALLED.findall(rest))
        if opcode == "while":
            condition = self.computations.get(called["condition"], _Computation())
            trips = condition.constant or 1
            self.current.unknown_loops += not condition.constant
            self.current.calls += [
                (called["body"], trips),
                (called["condition"], trips),
            ]
        elif opcode == "conditional":
            listed = _BRANCHES.search(rest)
            branches = (
                _NAME.findall(listed[1]) if listed else _BRANCH_PAIR.findall(rest)
            )
            self.current.choices.append(branches)
        elif opcode == "call":
            self.current.calls.append((called["to_apply"], 1))
        elif opcode == "async-start" and "calls" in called:
            self.current.calls.append((called["calls"], 1))


def _bytes(types: str) -> int:
    return sum(_array_bytes(kind, dims) for kind, dims in _ARRAY.findall(types))


def _array_bytes(kind: str, dims: str) -> int:
    bits = int(match[0]) if (match := re.search(r"\d+", kind)) else 8  # pred: one byte
    elements = 1
    for size in dims.replace("<=", "").split(","):
        elements *= int(size or 1)
    return max(bits, 8) * elements // 8
