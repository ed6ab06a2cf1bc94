"""The sweep: every case is right in both engines, or refused by the code it states."""

from __future__ import annotations

import pytest

from litert_sweep import CASES, judge
from litert_sweep.page import parts, table


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if case.quick else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)
def test_right_or_refused(name: str) -> None:
    case = CASES[name]
    found = judge(case)
    assert found.verdict != "wrong", found.detail
    assert found.code == case.code, found.detail


def test_the_sweep_is_wide() -> None:
    assert sum(case.code is None for case in CASES.values()) >= 52


def test_the_page_is_fresh() -> None:
    assert list(parts())[1] == table(), "run `make docs`"
