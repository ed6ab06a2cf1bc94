"""Names of TPU slices: Cloud's (v5e-8, v5p-8) and libtpu's (v6e:2x2)."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tpu_export.converters.tpu.chips import CHIPS, Chip
from tpu_export.runtime.errors import TpuExportError

_ALIASES: Final = {"v5litepod": "v5e", "v5lite": "v5e", "v5": "v5p"}
_NAME: Final = re.compile(
    r"(?P<chip>[a-z0-9]+?)(?:-(?P<size>\d+)|:(?P<shape>\d+(?:x\d+)+))"
)
_CHIPS_PER_HOST: Final = 4


class UnknownTopologyError(TpuExportError):
    """The text names no slice that Cloud or libtpu has."""

    code = "TPX-0301"


@dataclass(frozen=True)
class Topology:
    """One slice.

    devices = chips * chip.devices; a program compiled here runs on one of them.

    Attributes:
        name: as the user gave it.
        libtpu: libtpu's name, "v5e:2x2".
        chips: chips of the slice.
        hosts: virtual machines of the slice.
        chip: the facts of its generation.
    """

    name: str
    libtpu: str
    chips: int
    hosts: int
    chip: Chip

    @property
    def generation(self) -> str:
        """The chip's name, "v5e"."""
        return self.chip.generation

    @property
    def devices(self) -> int:
        """Devices that libtpu shows in the slice."""
        return self.chips * self.chip.devices

    @property
    def hbm_bytes(self) -> int:
        """HBM of one chip."""
        return self.chip.hbm_bytes

    @property
    def description(self) -> dict[str, object]:
        """Arguments of jax's get_topology_desc beside the platform."""
        # libtpu's default for v4 shows each core; JAX on a real v4 runs megacores.
        config = {"chip_config_name": "megacore"} if self.generation == "v4" else {}
        return {"topology_name": self.libtpu, **config}


def parse_topology(text: str) -> Topology:
    """Return the slice that a Cloud or a libtpu name means.

    >>> parse_topology("v5litepod-4").libtpu
    'v5e:2x2'
    >>> parse_topology("v5p-8").chips
    4

    Raises:
        UnknownTopologyError: with near names in its hint.
    """
    name = text.strip().lower()
    match = _NAME.fullmatch(name)
    chip = CHIPS.get(_ALIASES.get(match["chip"], match["chip"])) if match else None
    if match is None or chip is None:
        raise _unknown(text)
    shape = (
        _cloud_shape(chip, int(match["size"]))
        if match["size"]
        else _shape(match["shape"])
    )
    if shape is None or not _exists(chip, shape):
        raise _unknown(text)
    chips = math.prod(shape)
    libtpu = f"{chip.generation}:{'x'.join(map(str, shape))}"
    return Topology(text.strip(), libtpu, chips, _hosts(chip, chips), chip)


def cloud_names() -> tuple[str, ...]:
    """Return every Cloud name that parse_topology knows, by generation and size."""
    return tuple(
        f"{chip.generation}-{math.prod(shape) * (chip.cores_in_name or 1)}"
        for chip in CHIPS.values()
        for shape in _cloud_shapes(chip)
    )


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def _exists(chip: Chip, shape: tuple[int, ...]) -> bool:
    return len(shape) == chip.rank and 0 < math.prod(shape) <= chip.largest


def _cloud_shape(chip: Chip, size: int) -> tuple[int, ...] | None:
    cores = chip.cores_in_name or 1
    shapes = {math.prod(shape) * cores: shape for shape in _cloud_shapes(chip)}
    return shapes.get(size)


def _cloud_shapes(chip: Chip) -> Iterator[tuple[int, ...]]:
    """Yield the default shape of each size: powers of two, as cubic as can be."""
    if chip.generation in ("v5e", "v6e"):
        yield (1, 1)
    if chip.generation == "tpu7x":
        yield (1, 1, 1)
    shape = (2, 2) if chip.rank == 2 else (1, 2, 2)
    while math.prod(shape) <= chip.largest:
        # Cloud writes the one flat 3-D slice with its 1 last, others ascending.
        yield (2, 2, 1) if shape == (1, 2, 2) else shape
        shape = tuple(sorted((shape[0] * 2, *shape[1:])))


def _hosts(chip: Chip, chips: int) -> int:
    whole = 8 if chip.cores_in_name == 0 else _CHIPS_PER_HOST
    return 1 if chips <= whole else -(-chips // _CHIPS_PER_HOST)


def _unknown(text: str) -> UnknownTopologyError:
    names = cloud_names()
    name = text.strip().lower()
    if name in ("cpu", "host", "cpu/host"):
        return UnknownTopologyError(
            f"{text!r} is no TPU topology",
            hint="every .tpuexe has an executable for the CPU: give -t none for that one alone",
        )
    generation = re.split(r"[-:]", name)[0]
    near = difflib.get_close_matches(name, names, n=4, cutoff=0.6)
    same = [n for n in names if n.split("-")[0] == _ALIASES.get(generation, generation)]
    listed = list(dict.fromkeys([*near, *same[:6]])) or [
        "v5e-1",
        "v6e-1",
        "v5p-8",
        "tpu7x-8",
    ]
    return UnknownTopologyError(
        f"unknown TPU topology {text!r}",
        hint=f"near names: {', '.join(listed)}; libtpu's names work too, such as "
        "v6e:2x2 or v5p:2x2x1",
    )
