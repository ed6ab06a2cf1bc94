"""The sweep's table in docs/litert.md: PYTHONPATH=tests python -m litert_sweep.page.

It says what each case states; that this is what happens is tested, and printed by the sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from litert_sweep import CASES

PAGE = Path(__file__).parents[2] / "docs" / "litert.md"
BEGIN, END = "<!-- of litert_sweep.page -->\n", "<!-- end -->\n"


def table() -> str:
    """Return a row a family, and the totals."""
    cases = sorted(CASES.values(), key=lambda c: c.family)
    right = sum(c.code is None for c in cases)
    lines = [
        f"{len(cases)} cases: {right} right in both engines, {len(cases) - right} refused before "
        "anything is converted, none that converts and does not run, none wrong.",
        "",
        "| family | right | refused |",
        "|---|---|---|",
    ]
    for family, members in groupby(cases, key=lambda c: c.family):
        found = list(members)
        named = [f"`{c.name}`" for c in found if c.code is None]
        refused = [f"`{c.name}` {c.code}" for c in found if c.code is not None]
        lines.append(f"| {family} | {', '.join(named)} | {', '.join(refused)} |")
    return "\n".join(lines) + "\n"


def parts() -> Iterator[str]:
    """Yield the page before the table, the table, and the page after it."""
    before, rest = PAGE.read_text().split(BEGIN)
    within, after = rest.split(END)
    yield from (before, within, after)


if __name__ == "__main__":
    head, _, tail = parts()
    PAGE.write_text(f"{head}{BEGIN}{table()}{END}{tail}")
