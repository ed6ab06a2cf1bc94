"""Judge entries named on standard input, one JSON line each: {"suite", "name", "dtype"}.

    PYTHONPATH=tests python -m conformance.worker --seconds 5 --samples 100

A worker may crash; the sweep then starts another for the entries that are left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import torch

from conformance.judge import Outcome, judge
from conformance.samples import CANONICAL, DTYPES, module_samples, op_samples

BAD = ("wrong", "failed", "refused", "not exportable", "not eager")
CLEAR_EVERY = 40  # entries: XLA's caches of small programs grow without bound


def run_entry(
    suite: str, name: str, dtype: str, samples: int, seconds: float
) -> dict[str, Any]:
    """Judge an entry's samples until the time is up; returns counts and first reasons."""
    counts: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    ops: set[str] = set()
    start = time.monotonic()
    for n, outcome in enumerate(_outcomes(suite, name, DTYPES[dtype])):
        counts[outcome.status] += 1
        ops |= outcome.ops
        if outcome.status in BAD:
            reasons.setdefault(outcome.status, f"sample {n}: {outcome.reason}")
        if n + 1 >= samples or time.monotonic() - start > seconds:
            break
    return {
        "suite": suite, "name": name, "dtype": dtype,
        "counts": dict(sorted(counts.items())), "reasons": dict(sorted(reasons.items())),
        "ops": sorted(ops),
    }  # fmt: skip


def _outcomes(suite: str, name: str, dtype: torch.dtype) -> Iterator[Outcome]:
    if suite == "op":
        for module, args in op_samples(name, dtype):
            yield judge(module, args, canonical=CANONICAL.get(name))
    else:
        for module, args, kwargs in module_samples(name, dtype):
            yield judge(module, args, kwargs)


def main() -> None:
    """Read entries, write a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for n, line in enumerate(sys.stdin):
        entry = json.loads(line)
        result = run_entry(**entry, samples=options.samples, seconds=options.seconds)
        print("RESULT " + json.dumps(result), flush=True)
        if n % CLEAR_EVERY == CLEAR_EVERY - 1:
            jax.clear_caches()


if __name__ == "__main__":
    main()
