"""What the scan refuses is what docs/litert.md says."""

from __future__ import annotations

import re
from pathlib import Path

from tpu_export.converters.litert import conversion
from tpu_export.converters.litert.scan import _CHECKS, REFUSED

PAGE = (Path(__file__).parents[3] / "docs" / "litert.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+\.\w+)` \| (.*) \|$", PAGE, re.M))


def test_the_page_lists_what_is_refused_and_why() -> None:
    assert {op: why for op, why in ROWS.items() if op not in _CHECKS} == REFUSED
    assert set(_CHECKS) <= set(ROWS)


def test_the_page_lists_the_dtypes() -> None:
    for dtype, why in conversion._REFUSED_DTYPES.items():
        assert re.search(rf"^\| .*`{dtype}`.* \| {re.escape(why)} \|$", PAGE, re.M)
