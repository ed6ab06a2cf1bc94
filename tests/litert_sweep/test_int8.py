"""The bank of model patterns, quantized: each op is what the simulation says, or it is refused."""

from __future__ import annotations

import pytest
from test_cases import EXPORTABLE

from litert_sweep.int8 import judge_case


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPORTABLE)
def test_as_simulated_or_refused(name: str) -> None:
    found = judge_case(name)
    wrong = {r: f.detail for r, f in found.items() if f.verdict == "wrong"}
    assert not wrong
