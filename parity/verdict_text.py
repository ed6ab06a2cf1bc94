"""A verdict for people."""

from __future__ import annotations

import math
import statistics

from tpu_export.converters.litert.racing import Latency
from tpu_export.parity.agreement import Agreement
from tpu_export.parity.report import format_table
from tpu_export.parity.verdict import Verdict

_ROWS = ["signature", "output", "file", "against", "SNR dB", "cosine", "max abs"]
_TIMES = ["signature", "engine", "float ms min", "median", "quantized ms min", "median"]


def verdict_text(verdict: Verdict) -> str:
    """Return tables of agreement and latency, the sizes, and what is slower."""
    rows = [[*_ROWS, "max rel", "top-1", "top-5"], *map(_row, verdict.agreements)]
    times = [
        [*_TIMES, "ratio"],
        *(
            _time(name, latency)
            for name, race in verdict.races.items()
            for latency in race.latencies
        ),
    ]
    plain, quantized = verdict.sizes.plain, verdict.sizes.quantized
    size = f"size: {quantized} bytes, float {plain} ({quantized / plain:.2f} of it)"
    slower = [line for name in verdict.races for line in verdict.blame(name)]
    parts = [format_table(rows), size]
    parts += [format_table(times)] if verdict.races else []
    return "\n".join([*parts, *slower])


def _row(row: Agreement) -> list[str]:
    return [
        row.signature,
        row.output,
        row.file,
        row.reference,
        "equal" if row.snr == math.inf else f"{row.snr:.1f}",
        f"{row.cosine:.6f}",
        f"{row.max_abs:.2e}",
        f"{row.max_rel:.2e}",
        "" if row.top1 is None else f"{row.top1:.1%}",
        "" if row.top5 is None else f"{row.top5:.1%}",
    ]


def _time(name: str, latency: Latency) -> list[str]:
    numbers = [
        f"{value * 1e3:.3f}"
        for times in (latency.plain, latency.quantized)
        for value in (min(times), statistics.median(times))
    ]
    return [name, latency.engine, *numbers, f"{latency.ratio:.2f}"]
