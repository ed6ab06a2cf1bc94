"""Try every entry on the installed converter and engines, and compare with what is recorded."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias

from tpu_export.converters.litert.errors import LiteRtCrashedError
from tpu_export.converters.litert.exchange import Array, map_arrays
from tpu_export.converters.litert.process import run_module
from tpu_export.converters.litert.selftest.entry import (
    DIES,
    REFUSED,
    RIGHT,
    UNRUNNABLE,
    WRONG,
    Entry,
    Outcome,
)
from tpu_export.converters.litert.selftest.lowering import prepare
from tpu_export.converters.litert.selftest.numbers import NUMBERS
from tpu_export.converters.litert.selftest.ops import OPS
from tpu_export.converters.litert.selftest.results import RESULTS
from tpu_export.converters.litert.trial import close
from tpu_export.runtime.devices import keep_off_missing_tpu

ENTRIES: tuple[Entry, ...] = (*OPS, *NUMBERS, *RESULTS)
PACKAGES = ("litert-converter", "ai-edge-litert", "jax")
_ENGINES = ("interpreter", "compiled")
_STAGES = "tpu_export.converters.litert.selftest.stages"
Change: TypeAlias = Literal["", "newly right", "changed", "newly wrong"]


@dataclass(frozen=True)
class Finding:
    """What an entry did here.

    Attributes:
        found, expected: outcomes in the Interpreter and in CompiledModel.
        guarded_by: what of ours keeps models away from it, or relies on it.
        change: "newly right": a guard that could go; "newly wrong": a right one is not
            right any more, or one that failed aloud is silently wrong.
        words: of the first failure.
    """

    name: str
    found: tuple[Outcome, Outcome]
    expected: tuple[Outcome, Outcome]
    guarded_by: str
    change: Change
    words: str


@dataclass(frozen=True)
class SelfTest:
    """The findings of all entries with the installed versions."""

    versions: dict[str, str]
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Whether something is newly wrong."""
        return any(f.change == "newly wrong" for f in self.findings)


def selftest(entries: Sequence[Entry] = ENTRIES) -> SelfTest:
    """Convert entries without our rewrites, and run them in both engines.

    Raises:
        LiteRtCrashedError: a stage ended before its last entry.
    """
    keep_off_missing_tpu()
    with tempfile.TemporaryDirectory(prefix="tpu-export-litert-") as name:
        root = Path(name)
        places = [root / f"{number:03}" for number in range(len(entries))]
        expected = [prepare(e, p) for e, p in zip(entries, places, strict=True)]
        for stage in ("convert", *_ENGINES):
            status, words = run_module(_STAGES, stage, str(root))
            if status != 0:
                raise LiteRtCrashedError(
                    f"the self-test's {stage} stage died: {words}",
                    hint="see `tpu-export doctor`: are the LiteRT packages complete?",
                )
        findings = [
            _finding(*case) for case in zip(entries, places, expected, strict=True)
        ]
    versions = {package: version(package) for package in PACKAGES}
    return SelfTest(versions, tuple(findings))


def _finding(entry: Entry, folder: Path, expected: list[list[Array]]) -> Finding:
    answers = [_outcome(folder, engine, expected) for engine in _ENGINES]
    found = (answers[0][0], answers[1][0])
    recorded = (entry.interpreter, entry.compiled)
    words = next((text for _, text in answers if text), "")
    return Finding(
        entry.name, found, recorded, entry.guard, change(found, recorded), words
    )


def change(found: Sequence[Outcome], recorded: Sequence[Outcome]) -> Change:
    """Say how outcomes differ from the recorded ones.

    What writes out of bounds is wrong or dies, by chance.
    """
    by_chance = {WRONG, DIES}
    pairs = [
        (now, was)
        for now, was in zip(found, recorded, strict=True)
        if now != was and {now, was} != by_chance
    ]
    if not pairs:
        return ""
    if any(was == RIGHT or now == WRONG for now, was in pairs):
        return "newly wrong"
    return "newly right" if set(found) == {RIGHT} else "changed"


def _outcome(
    folder: Path, engine: str, expected: list[list[Array]]
) -> tuple[Outcome, str]:
    for stage, failure in (("convert", REFUSED), (engine, UNRUNNABLE)):
        answer = json.loads((folder / f"{stage}.json").read_text())
        if answer["status"] != 0:
            return DIES if answer["status"] < 0 else failure, answer["words"]
    for number, results in enumerate(expected):
        found = map_arrays(folder / f"{engine}-{number}")
        for i, right in enumerate(results):
            if f"y{i}" not in found or not close(found[f"y{i}"], right):
                return WRONG, ""
    return RIGHT, ""
