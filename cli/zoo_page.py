"""docs/zoo.md: what exporting the zoo gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpu_export.cli.output import size_text

if TYPE_CHECKING:
    from tpu_export.parity.export import ExportResult


@dataclass(frozen=True)
class Outcome:
    """One model for one target: a result, or why there is none."""

    name: str
    target: str
    result: ExportResult | None
    error: str


HEAD = """# The zoo, exported

Written by `make zoo`; do not edit. Times are seconds on the machine that ran it. Parity is
against torch eager on the example inputs and a second seeded set; the worst output is shown.
TPU figures are the compiler's estimates for one chip: no TPU was used.
`tpu-export zoo list` describes the models.

"""


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page as Markdown."""
    header = ["model", "target", "size", "seconds", "worst parity (max rel)", "limit"]
    header.append("kilocycles v5e / v6e")
    lines = [header, ["---"] * len(header)]
    lines += [_line(o) for o in outcomes]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    failures = [f"* {o.name} for {o.target}: {o.error}" for o in outcomes if o.error]
    tail = "\n".join(failures) if failures else "None."
    return f"{HEAD}{text}\n\n## Failures\n\n{tail}\n"


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
