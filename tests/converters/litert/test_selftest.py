"""The self-test sees what the installed converter does, and when it does something else."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import jax
import pytest

from tpu_export.cli import litert_selftest
from tpu_export.converters.litert.scan import _CHECKS, REFUSED, refused
from tpu_export.converters.litert.selftest import run
from tpu_export.converters.litert.selftest.entry import Entry, Outcome
from tpu_export.converters.litert.selftest.lowering import _lowered
from tpu_export.converters.litert.selftest.run import (
    ENTRIES,
    SelfTest,
    change,
    selftest,
)
from tpu_export.runtime.stablehlo import parsed

# One of each outcome, and of each kind of entry.
SOME = (
    "sort",
    "while of a known count",
    "transposed convolution, unequal pads",
    "interior pad, plain convolution",
    "remainder int32",
    "result returned twice",
    "result returned twice, copied",
    "input without elements",
    "batch of any size, softmax",
)


@pytest.fixture(scope="module")
def some() -> SelfTest:
    return selftest([e for e in ENTRIES if e.name in SOME])


def test_names_are_unique() -> None:
    names = [e.name for e in ENTRIES]
    assert len(set(names)) == len(names)
    assert set(SOME) <= set(names)


def test_the_installed_converter_does_what_is_recorded(some: SelfTest) -> None:
    assert [(f.name, f.found) for f in some.findings if f.change] == []
    assert len(some.findings) == len(SOME)
    outcomes = {outcome for f in some.findings for outcome in f.found}
    assert outcomes == {"right", "wrong", "refused", "cannot run"}
    assert not some.failed


def test_a_failure_has_words(some: SelfTest) -> None:
    words = {f.name: f.words for f in some.findings}
    assert "STABLEHLO_SORT" in words["sort"]
    assert words["interior pad, plain convolution"] == ""


@pytest.mark.slow
def test_every_program_does_what_is_recorded() -> None:
    found = selftest()
    assert [(f.name, f.found) for f in found.findings if f.change] == []


def test_the_scan_refuses_what_names_it_and_nothing_that_is_relied_on() -> None:
    seen = {e.name: scanned(e) for e in ENTRIES if plain(e)}
    named = {e.name for e in ENTRIES if e.guard.startswith("scan")} & set(seen)
    assert {name for name, lines in seen.items() if lines} == named
    ops = {line.split(" at ")[0] for lines in seen.values() for line in lines}
    # JAX makes a composite of top_k, a sort inside.
    assert ops == {*REFUSED, *_CHECKS} - {"stablehlo.custom_call", "chlo.top_k"}


def plain(entry: Entry) -> bool:
    """Leave out what is no static StableHLO: an export binds sizes before the scan."""
    return not entry.batch and entry.name != "custom call"


def scanned(entry: Entry) -> list[str]:
    with jax.enable_x64(True):
        module, _ = _lowered(jax.jit(entry.function, keep_unused=True), entry)
    return refused(parsed(module))


@pytest.mark.parametrize(
    ("found", "recorded", "said"),
    [
        (("right", "right"), ("right", "right"), ""),
        (("right", "right"), ("refused", "refused"), "newly right"),
        (("right", "right"), ("wrong", "right"), "newly right"),
        (("right", "wrong"), ("right", "right"), "newly wrong"),
        (("refused", "refused"), ("right", "right"), "newly wrong"),
        (("wrong", "wrong"), ("refused", "refused"), "newly wrong"),
        (("cannot run", "cannot run"), ("wrong", "wrong"), "changed"),
        (("wrong", "wrong"), ("wrong", "dies"), ""),
        (("dies", "dies"), ("refused", "refused"), "changed"),
    ],
)
def test_changes(
    found: Sequence[Outcome], recorded: Sequence[Outcome], said: str
) -> None:
    assert change(found, recorded) == said


def test_a_right_program_that_is_not_makes_the_command_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = {e.name: e for e in ENTRIES}
    lies = [
        dataclasses.replace(true["remainder int32"], interpreter="right"),
        dataclasses.replace(true["exponential"], compiled="refused"),
    ]

    def tried(_: Any = None) -> SelfTest:
        return selftest(lies)

    monkeypatch.setattr(run, "selftest", tried)
    with pytest.raises(SystemExit, match="1"):
        litert_selftest.show(as_json=False)
    out = capsys.readouterr().out
    assert "remainder int32: WRONG now" in out
    assert "exponential: right now: its guard could go" in out
    assert "0 of 2 programs do what is recorded" in out
    with pytest.raises(SystemExit, match="1"):
        litert_selftest.show(as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] is True
    assert found["findings"][0]["change"] == "newly wrong"
