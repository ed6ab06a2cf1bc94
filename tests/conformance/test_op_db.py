"""A part of the sweep: entries recorded as passing still pass, on their first sample."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from conformance.page import page
from conformance.samples import CANONICAL
from conformance.sweep import load_results, regressions, verdict
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


def test_the_page_is_fresh() -> None:
    recorded = Path(__file__).parents[2] / "docs" / "ops.md"
    assert recorded.read_text() == page(), "run `make docs`"


def test_a_place_must_hold_the_value() -> None:
    """Of several right places any passes, another does not."""
    x, values = torch.tensor([[2, 1, 2], [0, 0, 5]]), torch.tensor([2, 0])
    for places, good in (([0, 0], True), ([2, 1], True), ([1, 0], False)):
        outputs = (values, torch.tensor(places), x)
        found = CANONICAL["mode"](outputs)
        assert (len(found) == 1) is good
        assert (
            len(CANONICAL["topk"]([t.unsqueeze(1) for t in outputs[:2]] + [x]))
            == 2 - good
        )


def test_a_regression_is_an_entry_that_passed() -> None:
    entry = {"suite": "op", "name": "add", "dtype": "float32", "reasons": {}}
    passed, wrong = entry | {"counts": {"pass": 2}}, entry | {"counts": {"wrong": 1}}
    known = ("op", "add", "float32")
    assert regressions([wrong], {known: passed}) == [wrong]
    assert not regressions([passed], {known: passed})
    assert not regressions([wrong], {known: wrong})
    assert not regressions([wrong], {})
