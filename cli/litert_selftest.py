"""What the self-test of the LiteRT converter found, for people and for machines."""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.output import print_json, print_table

if TYPE_CHECKING:
    from tpu_export.converters.litert.selftest.run import Finding, SelfTest

_SUMMARY = {
    "newly right": "right now: its guard could go",
    "changed": "fails otherwise than recorded",
    "newly wrong": "WRONG now: do not use this converter",
}


def show(*, as_json: bool) -> None:
    """Run the self-test and print it; exit with 1 if something is newly wrong."""
    found = run()
    if as_json:
        print_json({**asdict(found), "failed": found.failed})
    else:
        click.echo(", ".join(f"{k} {v}" for k, v in found.versions.items()))
        print_table(rows(found))
        for line in summary(found):
            click.echo(line)
    if found.failed:
        raise SystemExit(1)


def run() -> SelfTest:
    """Return the findings.

    Raises:
        UsageError: the extra is missing.
    """
    need_litert()
    from tpu_export.converters.litert.selftest.run import selftest

    return selftest()


def need_litert() -> None:
    """Refuse to go on without the packages of the extra.

    Raises:
        UsageError: one is missing.
    """
    needed = ("litert_converter", "ai_edge_litert")
    missing = [m for m in needed if importlib.util.find_spec(m) is None]
    if missing:
        raise UsageError(
            f"{', '.join(missing)} is not installed",
            hint='pip install "tpu-export[litert]"',
        )


def rows(found: SelfTest) -> list[list[str]]:
    """Return the table: what was found, where it should be otherwise, the guard."""
    header = ["program", "Interpreter", "CompiledModel", "expected", "guarded by"]
    return [header, *(_row(f) for f in found.findings)]


def _row(finding: Finding) -> list[str]:
    expected = "the same" if not finding.change else " / ".join(finding.expected)
    return [finding.name, *finding.found, expected, finding.guarded_by]


def summary(found: SelfTest) -> list[str]:
    """Return a line for each difference, and a last one with the count."""
    lines: list[Any] = [
        f"{f.name}: {_SUMMARY[f.change]} ({f.guarded_by})"
        for f in found.findings
        if f.change
    ]
    count = len(found.findings)
    return [*lines, f"{count - len(lines)} of {count} programs do what is recorded"]
