"""docs/zoo.md: what exporting the zoo gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpu_export.cli.output import size_text

if TYPE_CHECKING:
    from tpu_export.parity.export import ExportResult


@dataclass(frozen=True)
class Outcome:
    """One model for one target: a result, or why there is none.

    Attributes:
        recipe: how it is quantized; "" where it is not.
    """

    name: str
    target: str
    result: ExportResult | None
    error: str
    recipe: str = ""

    @property
    def what(self) -> str:
        """Say which it is."""
        return f"{self.name} for {self.target} {self.recipe}".rstrip()


HEAD = """# The zoo, exported

Written by `make zoo`; do not edit. Times are seconds on the machine that ran it. Parity is
against torch eager on the example inputs and a second seeded set; the worst output is shown.
TPU figures are the compiler's estimates for one chip: no TPU was used.
`tpu-export zoo list` describes the models.

"""


QUANTIZED = """
## Quantized, on real inputs

Against torch eager in float32, over all calls that the zoo has for the model (the same that
calibrate static recipes). SNR in decibels; top-1 is the share of rows whose largest element is
eager's. Latency is the ratio of medians to the float `.tflite`, interpreter / compiled, on the
machine that ran it.

"""


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page as Markdown."""
    header = ["model", "target", "size", "seconds", "worst parity (max rel)", "limit"]
    header.append("kilocycles v5e / v6e")
    lines = [header, ["---"] * len(header)]
    lines += [_line(o) for o in outcomes if not o.recipe]
    text = _table(lines) + _quantized([o for o in outcomes if o.recipe])
    failures = [f"* {o.what}: {o.error}" for o in outcomes if o.error]
    tail = "\n".join(failures) if failures else "None."
    return f"{HEAD}{text}\n## Failures\n\n{tail}\n"


def _table(lines: Sequence[Sequence[str]]) -> str:
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _quantized(outcomes: Sequence[Outcome]) -> str:
    """Return the section of quantized models; "" where there are none."""
    header = ["model", "recipe", "size", "output", "SNR", "cosine", "top-1", "latency"]
    lines = [header, ["---"] * len(header)]
    for outcome in outcomes:
        lines += _agreements(outcome)
    return QUANTIZED + _table(lines) if outcomes else ""


def _agreements(outcome: Outcome) -> list[list[str]]:
    start = [outcome.name, outcome.recipe]
    if outcome.result is None or outcome.result.quantization is None:
        return [[*start, "failed", "", "", "", "", ""]]
    verdict = outcome.result.quantization["verdict"]
    return [
        [
            *start,
            size_text(outcome.result.size),
            row["output"],
            "exact" if row["snr"] is None else f"{row['snr']:.1f}",
            f"{row['cosine']:.5f}",
            "" if row["top1"] is None else f"{row['top1']:.0%}",
            " / ".join(f"{x['ratio']:.2f}" for x in _latencies(verdict, row)),
        ]
        for row in verdict["agreements"]
        if row["file"] == "quantized" and row["reference"] == "eager"
    ]


def _latencies(verdict: dict[str, Any], row: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = verdict["races"][row["signature"]]["latencies"]
    return found


def _line(outcome: Outcome) -> list[str]:
    result = outcome.result
    if result is None:
        return [outcome.name, outcome.target, "failed", "", "", "", ""]
    worst = result.parity.worst if result.parity else None
    cycles = [f"{float(str(e['cycles'])) / 1e3:.0f}" for e in result.estimates]
    return [
        outcome.name,
        outcome.target,
        size_text(result.size),
        f"{sum(seconds for _, seconds in result.stages):.1f}",
        f"{worst.output}: {worst.max_rel:.1e}" if worst else "not run",
        (f"{worst.threshold:.0e}" if worst.threshold else "exact") if worst else "",
        " / ".join(cycles),
    ]
