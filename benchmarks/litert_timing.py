"""Latencies of contenders that take turns in one process."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

Runner: TypeAlias = Callable[[], object]
ROUNDS, SECONDS, PAUSE = 25, 8.0, 0.03


def timed(runners: Mapping[str, Runner]) -> dict[str, dict[str, float]]:
    """Return the least and the median of the rounds, in milliseconds."""
    if not runners:
        return {}
    times = rounds(list(runners.values()))
    return {
        name: {"min": min(t) * 1e3, "median": statistics.median(t) * 1e3}
        for name, t in zip(runners, times, strict=True)
    }


def rounds(runners: list[Runner]) -> list[list[float]]:
    """Return seconds a call of each runner, one number a round; the runners take turns.

    Before each turn: a pause, because another's threads may still spin for work, and a call.
    Each round has an order of its own, so that none always follows the same one.
    """
    times: list[list[float]] = [[] for _ in runners]
    share = SECONDS / (ROUNDS * len(runners))
    turns = [*zip(runners, times, strict=True)]
    draw = random.Random(0)
    for _ in range(ROUNDS):
        for runner, found in draw.sample(turns, len(turns)):
            time.sleep(PAUSE)
            runner()
            start, calls = time.perf_counter(), 0
            while calls == 0 or time.perf_counter() - start < share:
                runner()
                calls += 1
            found.append((time.perf_counter() - start) / calls)
    return times
