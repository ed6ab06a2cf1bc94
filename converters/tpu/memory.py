"""XLA's out-of-memory message as a typed error with sizes and the largest values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from tpu_export.converters.tpu.cost import place
from tpu_export.runtime.errors import TpuExportError

_GIB: Final = 2**30
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# Two wordings, by libtpu's age: "required for … (54.77G) exceeds available HBM
# (15.75G)" and "Used 54.77G of 15.75G hbm".
_SIZES: Final = re.compile(
    r"\(([\d.]+)([KMGT]?)\) exceeds available HBM \(([\d.]+)([KMGT]?)\)"
    r"|Used ([\d.]+)([KMGT]?) of ([\d.]+)([KMGT]?) hbm"
)
_LISTED: Final = 5


@dataclass(frozen=True)
class Value:
    """A value of the program and where the model makes it."""

    bytes: int
    shape: str
    module: str
    op: str
    source: str

    def __str__(self) -> str:
        where = " ".join(filter(None, (self.op, "in", self.module, self.source)))
        return f"{self.bytes / _GIB:.2f} GiB {self.shape} of {where}"


class OutOfMemoryError(TpuExportError):
    """The program needs more HBM than one chip has.

    Attributes:
        needed: bytes of HBM the compiler asked for.
        available: bytes of HBM it may use.
        largest: the program's largest values, before the compiler fused any.
    """

    code = "TPX-0304"

    def __init__(
        self, topology: str, needed: int, available: int, largest: tuple[Value, ...]
    ) -> None:
        """State the sizes, and the largest values as candidates to shrink."""
        listed = "; ".join(map(str, largest[:3])) or "unknown"
        super().__init__(
            f"out of HBM on {topology}: needs {needed / _GIB:.2f} GiB of "
            f"{available / _GIB:.2f} GiB",
            hint="use a smaller batch or sequence, a smaller dtype, or a chip with "
            f"more HBM (v6e: 32 GB, v5p: 95 GB); largest values: {listed}",
        )
        self.topology = topology
        self.needed = needed
        self.available = available
        self.largest = largest

    def to_json(self) -> dict[str, object]:
        """Return plain data for json."""
        return {
            "topology": self.topology,
            "needed": self.needed,
            "available": self.available,
            "largest": [asdict(value) for value in self.largest],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OutOfMemoryError:
        """Rebuild what to_json gave."""
        largest = tuple(Value(**value) for value in data["largest"])
        return cls(data["topology"], data["needed"], data["available"], largest)


def hbm_sizes(message: str) -> tuple[int, int] | None:
    """Return (needed, available) bytes; None when the message is another one."""
    match = _SIZES.search(message)
    if match is None:
        return None
    needed, needed_unit, available, unit = filter(
        lambda group: group is not None, match.groups()
    )
    return _size(needed, needed_unit), _size(available, unit)


def largest_values(module: Any) -> tuple[Value, ...]:  # an MLIR module
    """Return the largest results of a StableHLO module's ops, one for each place."""
    sized = [(_bytes(str(result.type)), op, result) for op, result in _results(module)]
    found: dict[tuple[str, str], Value] = {}
    for size, op, result in sorted(sized, key=lambda item: -item[0]):
        module_path, aten, source = place(_name(str(op.location)))
        shape = str(result.type).removeprefix("tensor")
        if source:
            value = Value(size, shape, module_path, aten, source)
            found.setdefault((module_path, source), value)
        if len(found) == _LISTED:
            break
    return tuple(found.values())


def _size(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])


def _results(module: Any) -> Iterator[tuple[Any, Any]]:
    pending = [module.operation]
    while pending:
        op = pending.pop()
        yield from ((op, result) for result in op.results)
        pending += [
            child.operation
            for region in op.regions
            for block in region
            for child in block
        ]


def _bytes(kind: str) -> int:
    """Return the bytes of "tensor<8x512xf32>"; 0 for other types and unknown sizes."""
    match = re.fullmatch(r"tensor<((?:\d+x)*)([a-z]+)(\d*)\w*>", kind)
    if match is None:
        return 0
    elements = math.prod(int(size) for size in match[1].split("x") if size)
    return elements * max(int(match[3] or 8), 8) // 8


def _name(location: str) -> str:
    names = re.findall(r'"([^"]*)"', location)
    return max(names, key=len, default="")
