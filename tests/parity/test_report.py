from __future__ import annotations

from dataclasses import replace

import pytest

from tpu_export.cli.json_values import json_text
from tpu_export.parity.report import ParityReport, ParityRow

ROW = ParityRow(
    signature="forward",
    output="logits",
    rung="tpuexe on cpu",
    reference="eager",
    inputs="example",
    dtype="float32",
    max_abs=1e-6,
    max_rel=1e-6,
    cosine=1.0,
    threshold=1e-4,
    passed=True,
)
BAD = replace(ROW, output="mask", max_rel=1.0, threshold=0.0, passed=False)
OPEN = replace(ROW, output="noise", max_rel=9.0, passed=None)


@pytest.mark.parametrize(
    ("rows", "passed"),
    [((), False), ((ROW,), True), ((ROW, BAD), False), ((ROW, OPEN), True)],
)
def test_passed(rows: tuple[ParityRow, ...], passed: bool) -> None:
    assert ParityReport(rows).passed is passed


def test_worst_is_the_farthest_from_its_limit() -> None:
    assert ParityReport((ROW, OPEN, BAD)).worst == BAD
    wrong_shape = replace(BAD, max_rel=float("inf"))
    assert ParityReport((BAD, wrong_shape)).worst == wrong_shape
    assert ParityReport(()).worst is None


def test_json_is_plain() -> None:
    report = ParityReport((replace(BAD, max_abs=float("inf")),))
    assert report.to_json()["rows"][0]["max_abs"] == float("inf")
    assert '"max_abs": "Infinity"' in json_text(report.to_json())


def test_text_has_a_line_per_row() -> None:
    text = ParityReport((ROW, BAD, OPEN)).text()
    assert [w in text for w in ("logits", "FAIL", "not comparable")] == [True] * 3
    assert len(text.splitlines()) == 4
