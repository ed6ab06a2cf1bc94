from __future__ import annotations

import platform

import pytest

from tpu_export.converters.tpu.capabilities import compile_capabilities
from tpu_export.converters.tpu.chips import CHIPS


def test_libtpu_answers_for_every_generation() -> None:
    found = compile_capabilities()
    assert found.problem == ""
    assert found.libtpu
    assert "Built on" in found.build
    assert found.generations == tuple(CHIPS)


def test_a_host_that_cannot_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    found = compile_capabilities()
    assert found.libtpu is None
    assert "Darwin" in found.problem


def test_a_libtpu_that_hangs_is_a_problem() -> None:
    assert "does not start" in compile_capabilities(timeout=0.01).problem
