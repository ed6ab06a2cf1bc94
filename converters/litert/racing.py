"""How long two .tflite files take on this host, in one process, taking turns."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpu_export.converters.litert.errors import LiteRtUnloadableError
from tpu_export.converters.litert.exchange import Array, write_arrays
from tpu_export.converters.litert.process import run_module

_RACE = "tpu_export.converters.litert.race"


@dataclass(frozen=True)
class Latency:
    """Seconds a call, one number a round, of the float and of the quantized file.

    `ratio` is by the medians: above 1 the quantized file is slower.
    """

    engine: str
    plain: Sequence[float]
    quantized: Sequence[float]

    @property
    def ratio(self) -> float:
        """How many times the float file's time the quantized one takes."""
        return statistics.median(self.quantized) / statistics.median(self.plain)

    @property
    def difference(self) -> float:
        """Seconds that the quantized file takes more."""
        return statistics.median(self.quantized) - statistics.median(self.plain)


@dataclass(frozen=True)
class Left:
    """What XNNPACK did not take of a file: `parts` that it took, count of each op left."""

    parts: int
    ops: Mapping[str, int]


@dataclass(frozen=True)
class Race:
    """Both engines' latencies, and what XNNPACK left of the float and quantized file.

    What it left is None where the file has several signatures.
    """

    latencies: Sequence[Latency]
    plain: Left | None = None
    quantized: Left | None = None


def race(
    files: tuple[Path, Path],
    inputs: tuple[Mapping[str, Array], Mapping[str, Array]],
    signature: str,
    *,
    rounds: int = 9,
    seconds: float = 1.0,
) -> Race:
    """Time a float and a quantized file in a worker process, on one input each.

    Args:
        seconds: about how long each engine is timed.

    Raises:
        LiteRtUnloadableError: an engine cannot run one of them.
    """
    with tempfile.TemporaryDirectory(prefix="tpu-export-race-") as name:
        folder = Path(name)
        request = {
            "files": [str(f) for f in files],
            "signature": signature,
            "rounds": rounds,
            "seconds": seconds,
        }
        (folder / "request.json").write_text(json.dumps(request))
        for side, arrays in zip("ab", inputs, strict=True):
            write_arrays(folder / side, arrays)
        status, words = run_module(_RACE, str(folder))
        if status != 0:
            raise LiteRtUnloadableError(
                f"signature {signature!r} cannot be timed: {words}",
                hint="see whether the float file runs by itself",
            )
        found = json.loads((folder / "times.json").read_text())
    latencies = [Latency(engine, *times) for engine, times in found["times"].items()]
    plain, quantized = (Left(*left) if left else None for left in found["left"])
    return Race(latencies, plain, quantized)
