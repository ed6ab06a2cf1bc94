"""A part of the sweep: entries recorded as passing still pass, on their first sample."""

from __future__ import annotations

import warnings

import pytest

from conformance.sweep import load_results, verdict
from conformance.worker import run_entry

PASSING = [e for e in load_results().values() if verdict(e) == "pass"]
# Every op in float32, and some of the others: all of it is `make test-ops`.
QUICK = [e for e in PASSING if e["dtype"] == "float32"]
QUICK += [e for e in PASSING if e["dtype"] != "float32"][::25]


@pytest.mark.parametrize(
    "entry", QUICK, ids=["-".join((e["suite"], e["name"], e["dtype"])) for e in QUICK]
)
def test_entry_still_passes(entry: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own samples
        result = run_entry(
            entry["suite"], entry["name"], entry["dtype"], samples=1, seconds=1
        )
    assert verdict(result) in ("pass", "no sample", "not exportable"), result
