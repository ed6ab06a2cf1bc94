"""Totals of the sweep: PYTHONPATH=tests python -m litert_sweep [NAME ...]."""

from __future__ import annotations

import sys
import time
from collections import Counter

from litert_sweep import CASES, judge


def main(names: list[str]) -> int:
    """Print a line a case, and the totals; 1 where a case is not as expected."""
    unexpected, totals = 0, Counter[str]()
    for case in [CASES[name] for name in names] or CASES.values():
        start = time.perf_counter()
        found = judge(case)
        seconds = time.perf_counter() - start
        totals[found.verdict] += 1
        odd = found.code != case.code or found.verdict in ("wrong", "broken")
        unexpected += odd
        words = f"{found.code or ''} {found.detail[:400]}"
        mark = "!" if odd else " "
        print(f"{mark} {case.name:28} {found.verdict:8} {seconds:5.1f} s {words}")
    print(", ".join(f"{count} {verdict}" for verdict, count in totals.items()))
    return min(unexpected, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
