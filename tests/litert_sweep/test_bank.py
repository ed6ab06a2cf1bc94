"""The bank of model patterns through LiteRT: each is right, or refused with a reason."""

from __future__ import annotations

import pytest
from test_cases import EXPORTABLE

from litert_sweep.bank import judge_case


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPORTABLE)
def test_right_or_refused(name: str) -> None:
    found = judge_case(name)
    assert found.verdict in ("right", "refused"), found.detail
