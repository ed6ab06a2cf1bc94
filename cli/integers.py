"""What `inspect` shows of 64-bit integers: how many are computed in 32 bits, and which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SHOWN = 40
_LIMITS = {-(2**63): "-2^63", 2**63 - 1: "2^63 - 1"}


def summary(name: str, tensors: Sequence[Mapping[str, Any]]) -> str:
    """Return "int64 tensors of forward: 35 of 36 computed in 32 bits"."""
    total = sum(t["count"] for t in tensors)
    narrowed = sum(t["count"] for t in tensors if t["narrowed"])
    return f"int64 tensors of {name}: {narrowed} of {total} computed in 32 bits"


def lines(tensors: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows of a table: what stays in 64 bits first, at most 40."""
    ordered = sorted(tensors, key=lambda t: t["narrowed"])
    rows = [
        [
            t["place"],
            t["operation"] or "-",
            f"{t['shape']}" + (f" x {t['count']}" if t["count"] > 1 else ""),
            f"{_number(t['low'])} … {_number(t['high'])}",
            "int32" if t["narrowed"] else f"int64: {t['reason']}",
        ]
        for t in ordered[:_SHOWN]
    ]
    if len(ordered) > _SHOWN:
        rows.append([f"and {len(ordered) - _SHOWN} more: see --json", "", "", "", ""])
    return [["place", "made by", "shape", "values", "computed in"], *rows]


def _number(n: int) -> str:
    return _LIMITS.get(n, str(n))
