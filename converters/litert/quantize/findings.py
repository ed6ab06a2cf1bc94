"""What the lint found, and the rules of a recipe that avoid it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from math import inf, isfinite

from tpu_export.converters.litert.quantize.recipes import Rule


@dataclass(frozen=True)
class Finding:
    """Ops of one kind in a module that get another number format, and why.

    Attributes:
        kind: "outliers", "softmax", "layer norm", "sum", "comparison", "weights" or "constants".
        module: dotted path; op: of LiteRT; count: how many.
        recipe: a name of NAMES, in place of the one that was asked for.
        snr: decibels that the one asked for would leave; None: it cannot hold the numbers.
        why: in words.
    """

    kind: str
    module: str
    op: str
    count: int
    recipe: str
    snr: float | None
    why: str

    def to_json(self) -> dict[str, object]:
        """Return it as JSON-able values."""
        known = self.snr is not None and isfinite(self.snr)
        return asdict(self) | {"snr": self.snr if known else None}


def merged(found: Iterable[Finding]) -> list[Finding]:
    """Return one finding for each op of a module, of those of its first kind the worst."""
    kept: dict[tuple[str, str], Finding] = {}
    for finding in found:
        known = kept.setdefault((finding.module, finding.op), finding)
        if known.kind == finding.kind and _left(finding) < _left(known):
            kept[finding.module, finding.op] = finding
    return [kept[key] for key in sorted(kept)]


def _left(finding: Finding) -> float:
    return -inf if finding.snr is None else finding.snr


def rules_of(found: Sequence[Finding]) -> tuple[Rule, ...]:
    """Return rules for the findings, one for each module and number format."""

    def place(finding: Finding) -> tuple[str, str]:
        return finding.module, finding.recipe

    return tuple(
        Rule(recipe, re.sub(r"([*?[])", r"[\1]", module), tuple(f.op for f in own))
        for (module, recipe), own in groupby(sorted(found, key=place), key=place)
    )


def lines(found: Sequence[Finding]) -> list[str]:
    """Say it: modules that differ in a number only share a line."""
    alike: dict[tuple[str, str, str, str], list[Finding]] = {}
    for f in found:
        module = re.sub(r"\b\d+\b", "*", f.module)
        alike.setdefault((f.kind, f.recipe, f.why, module), []).append(f)
    return [_line(*key, own) for key, own in alike.items()]


def _line(
    kind: str, recipe: str, why: str, module: str, found: Sequence[Finding]
) -> str:
    ops = ", ".join(
        f"{sum(f.count for f in found if f.op == op)} {op}"
        for op in dict.fromkeys(f.op for f in found)
    )
    return (
        f"lint, {kind}: {ops} of {module or 'the root'} as {recipe}: "
        f"{why}{_decibels([f.snr for f in found if f.snr is not None])}"
    )


def _decibels(values: Sequence[float]) -> str:
    known = [v for v in values if isfinite(v)]
    if not known:
        return ""
    low, high = f"{min(known):.1f}", f"{max(known):.1f}"
    left = low if low == high else f"{low} to {high}"
    return f" (int8 would leave {left} dB)"
