"""What one TPU chip has: figures that turn a compiler's estimate into bytes and time.

Memory, bandwidth and peak compute are Google Cloud's own figures. Clocks: papers name
those of v2, v3 and v4; for later chips Cloud publishes none, so the table holds what
the published peak implies for the multiply units a core has, and calls it an
assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_GIB: Final = 2**30
_DOCS: Final = "https://docs.cloud.google.com/tpu/docs/"
_CACM_2020: Final = "Jouppi et al., CACM 63(7), 2020, table 1: 700 and 940 MHz"
_ISCA_2023: Final = "Jouppi et al., ISCA 2023, table 4: 1050 MHz"


@dataclass(frozen=True)
class Chip:
    """One generation. Figures are per chip; a device is what one program runs on.

    Attributes:
        generation: libtpu's and Cloud's name, "v5e".
        cores_in_name: TensorCores a Cloud name counts for each chip; 0: it counts
            chips.
        devices: devices that libtpu shows for each chip.
        rank: dimensions of a slice.
        largest: chips of the largest slice that Cloud sells.
        hbm_bytes: HBM capacity.
        hbm_bytes_per_second: HBM bandwidth.
        peak_flops: bf16 floating-point operations per second.
        clock_hz: cycles of a TensorCore per second.
        source: where capacity, bandwidth and peak are published.
        clock_source: where the clock is published, or how it was derived.
    """

    generation: str
    cores_in_name: int
    devices: int
    rank: int
    largest: int
    hbm_bytes: int
    hbm_bytes_per_second: float
    peak_flops: float
    clock_hz: float
    source: str
    clock_source: str

    @property
    def device_hbm_bytes(self) -> int:
        """HBM that belongs to one device."""
        return self.hbm_bytes // self.devices


def _derived(units: str) -> str:
    return f"assumption: published bf16 peak / FLOP per cycle of {units}"


CHIPS: Final[dict[str, Chip]] = {
    chip.generation: chip
    for chip in (
        Chip(
            "v2", 2, 2, 2, 256, 16 * _GIB, 700e9, 46e12, 0.70e9,
            _DOCS + "v2", _CACM_2020,
        ),
        Chip(
            "v3", 2, 2, 2, 1024, 32 * _GIB, 900e9, 123e12, 0.94e9,
            _DOCS + "v3", _CACM_2020,
        ),
        Chip(
            "v4", 2, 1, 3, 4096, 32 * _GIB, 1200e9, 275e12, 1.05e9,
            _DOCS + "v4", _ISCA_2023,
        ),
        Chip(
            "v5e", 0, 1, 2, 256, 16 * _GIB, 819e9, 197e12, 1.5e9,
            _DOCS + "v5e", _derived("four 128x128 MXUs"),
        ),
        Chip(
            "v5p", 2, 1, 3, 8960, 95 * _GIB, 2765e9, 459e12, 1.75e9,
            _DOCS + "v5p", _derived("two cores of four 128x128 MXUs"),
        ),
        Chip(
            "v6e", 0, 1, 2, 256, 32 * _GIB, 1638e9, 918e12, 1.75e9,
            _DOCS + "v6e", _derived("four 256x256 products a cycle"),
        ),
        Chip(
            "tpu7x", 2, 2, 3, 9216, 192 * _GIB, 7380e9, 2307e12, 2.2e9,
            _DOCS + "tpu7x", _derived("two cores of four 256x256 products a cycle"),
        ),
    )
}  # fmt: skip
