"""The outcome of a parity run: a row for each output of each rung."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite


@dataclass(frozen=True)
class ParityRow:
    """One output on one rung against the reference.

    Attributes:
        signature: the signature's name.
        output: the output's name, "state.NAME" for a state slot after the last call,
            or "input.NAME" for an input that forward() wrote to.
        rung: what was run, e.g. "tpuexe on cpu".
        reference: what it was compared with, e.g. "eager".
        inputs: "example", or "seed N".
        passed: None when it cannot be compared (the output is random).
        note: why not, in words.
    """

    signature: str
    output: str
    rung: str
    reference: str
    inputs: str
    dtype: str
    max_abs: float
    max_rel: float
    cosine: float
    threshold: float
    passed: bool | None
    note: str = ""


@dataclass(frozen=True)
class ParityReport:
    """Every row of a run."""

    rows: tuple[ParityRow, ...]

    @property
    def passed(self) -> bool:
        """Whether there are rows and none failed."""
        return bool(self.rows) and all(row.passed is not False for row in self.rows)

    @property
    def worst(self) -> ParityRow | None:
        """The row that misses its threshold by most, or comes nearest to it."""

        def excess(row: ParityRow) -> float:
            if row.passed is None:
                return -1.0
            if not isfinite(row.max_rel):
                return float("inf")
            return row.max_rel / row.threshold if row.threshold else row.max_rel

        return max(self.rows, key=excess, default=None)

    def to_json(self) -> dict[str, object]:
        """Return the report as plain values; a difference may be infinite."""
        return {"passed": self.passed, "rows": [asdict(row) for row in self.rows]}

    def table(self) -> list[list[str]]:
        """Return a header and a line per row, as text."""
        header = ["signature", "output", "rung", "inputs", "max abs", "max rel"]
        lines = [[*header, "cosine", "limit", "verdict"]]
        for row in self.rows:
            verdict = {True: "ok", False: "FAIL", None: "not comparable"}[row.passed]
            lines.append(
                [
                    row.signature,
                    row.output,
                    row.rung,
                    row.inputs,
                    f"{row.max_abs:.2e}",
                    f"{row.max_rel:.2e}",
                    f"{row.cosine:.7f}",
                    f"{row.threshold:.0e}" if row.threshold else "exact",
                    f"{verdict}: {row.note}" if row.note else verdict,
                ]
            )
        return lines

    def text(self) -> str:
        """Return the table as aligned plain text."""
        return format_table(self.table())


def format_table(lines: Sequence[Sequence[str]]) -> str:
    """Align columns with two spaces between them."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
