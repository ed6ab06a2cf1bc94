"""What doctor says of the CPU was tried, and can be "no"."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tpu_export.cli.cpu_check import cpu_runs, outputs
from tpu_export.runtime import program

Run = Callable[..., tuple[int, str, str]]


def test_the_cpu_runs_a_program() -> None:
    actual, expected = outputs()
    assert len(np.unique(expected)) > 10  # a constant result would prove little
    np.testing.assert_array_equal(actual, expected)
    assert cpu_runs().startswith("yes: ")


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    true = program.Program._call

    def wrong(self: Any, *args: Any) -> Any:
        result = true(self, *args)
        result[-1] += 1
        return result

    monkeypatch.setattr(program.Program, "_call", wrong)
    assert cpu_runs().startswith("no: ")
    assert "wrong results" in cpu_runs()


@pytest.mark.parametrize("error", [RuntimeError("no such\nthing"), MemoryError()])
def test_a_failure_is_an_answer(
    tpx: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(program, "load", fail)
    status, out, _ = tpx("doctor", "--json")
    assert status == 0
    found = json.loads(out)["can"]["run on the CPU"]
    assert found == f"no: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
