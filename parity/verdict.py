"""The verdict on a quantized .tflite: agreement with eager and float, size, speed, and gates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tpu_export.converters.litert.racing import Latency, Race
from tpu_export.parity.agreement import Agreement
from tpu_export.runtime.errors import TpuExportError

_CASTS = ("QUANTIZE", "DEQUANTIZE")


class QuantizationNoiseError(TpuExportError):
    """A quantized output is farther from torch eager than --min-snr allows."""

    code = "TPX-0621"


class QuantizationSlowError(TpuExportError):
    """A quantized file is slower than --max-slowdown allows."""

    code = "TPX-0622"


@dataclass(frozen=True)
class Sizes:
    """Bytes of the two files."""

    plain: int
    quantized: int


@dataclass(frozen=True)
class Verdict:
    """What quantization did, as measured on this host.

    Attributes:
        races: of each signature, by name.
        casts: QUANTIZE and DEQUANTIZE ops of the quantized file.
    """

    agreements: Sequence[Agreement]
    sizes: Sizes
    races: dict[str, Race]
    casts: int = 0

    @property
    def worst(self) -> Agreement | None:
        """The quantized output with the least decibels against eager."""
        rows = [
            a
            for a in self.agreements
            if a.file == "quantized" and a.reference == "eager"
        ]
        return min(rows, key=lambda a: a.snr, default=None)

    @property
    def slowest(self) -> tuple[str, Latency] | None:
        """The signature and engine with the largest ratio."""
        rows = [(name, x) for name, race in self.races.items() for x in race.latencies]
        return max(rows, key=lambda row: row[1].ratio, default=None)

    def to_json(self) -> dict[str, object]:
        """Return the verdict as JSON-able values; no error at all is null."""
        rows = [asdict(a) for a in self.agreements]
        for row in rows:
            row["snr"] = row["snr"] if math.isfinite(row["snr"]) else None
        return {
            "agreements": rows,
            "sizes": asdict(self.sizes),
            "races": {name: _race_json(race) for name, race in self.races.items()},
            "casts": self.casts,
            "slower": [line for name in self.races for line in self.blame(name)],
        }

    def blame(self, signature: str) -> list[str]:
        """Say for a signature where it is slower than float, and what may be the reason."""
        race = self.races[signature]
        slower = [x for x in race.latencies if x.ratio > 1]
        lines = [
            f"SLOWER than float: {signature!r} takes {x.ratio:.2f} times as long in the "
            f"{x.engine} (measured)"
            for x in slower
        ]
        return [*lines, _reason(race, self.casts)] if slower else []


def _reason(race: Race, casts: int) -> str:
    words = [f"{casts} QUANTIZE and DEQUANTIZE ops"] if casts else []
    if race.quantized and race.plain:
        left, before = race.quantized.ops, race.plain.ops
        new = {
            op: count - before.get(op, 0)
            for op, count in left.items()
            if count > before.get(op, 0) and op not in _CASTS
        }
        named = ", ".join(f"{op} {count}" for op, count in new.items())
        if named:
            words.append(f"XNNPACK no longer takes {named}")
        if race.quantized.parts > race.plain.parts:
            words.append(
                f"it takes the rest in {race.quantized.parts} parts, "
                f"not {race.plain.parts}"
            )
    found = "; ".join(words) or "nothing stands out in the list of ops"
    return (
        f"  likely why (from the ops and what XNNPACK took; no op was timed): {found}"
    )


def _race_json(race: Race) -> dict[str, object]:
    return {
        "latencies": [
            {
                "engine": x.engine,
                "float_ms": _milliseconds(x.plain),
                "quantized_ms": _milliseconds(x.quantized),
                "ratio": x.ratio,
            }
            for x in race.latencies
        ],
        "outside_xnnpack": {
            "float": asdict(race.plain) if race.plain else None,
            "quantized": asdict(race.quantized) if race.quantized else None,
        },
    }


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {"min": min(seconds) * 1e3, "median": statistics.median(seconds) * 1e3}


@dataclass(frozen=True)
class Gates:
    """Limits that a verdict must keep; None is no limit.

    Attributes:
        min_snr: decibels that each quantized output must have against eager.
        max_slowdown: how many times the float file's time each engine may take.
    """

    min_snr: float | None = None
    max_slowdown: float | None = None

    def check(self, verdict: Verdict) -> None:
        """Refuse a verdict outside of the limits; the worst row is named.

        Raises:
            QuantizationNoiseError, QuantizationSlowError: it is outside.
        """
        worst, slowest = verdict.worst, verdict.slowest
        if self.min_snr is not None and worst and not worst.snr >= self.min_snr:
            raise QuantizationNoiseError(
                f"output {worst.name}: {worst.snr:.1f} dB, --min-snr is {self.min_snr:g}",
                hint="nothing was written; `tpu-export quantize-debug MODEL` names the "
                "layer and writes a recipe that leaves it in float",
            )
        if self.max_slowdown is None or not slowest:
            return
        signature, latency = slowest
        if latency.ratio > self.max_slowdown:
            reason = verdict.blame(signature)[-1].strip() if latency.ratio > 1 else ""
            raise QuantizationSlowError(
                f"{signature!r} takes {latency.ratio:.2f} times the float file's time in "
                f"the {latency.engine}, --max-slowdown is {self.max_slowdown:g}",
                hint=f"nothing was written; {reason or 'try another recipe'}",
            )
