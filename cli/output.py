"""How results are shown: progress to stderr, results to stdout, JSON for machines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from tpu_export.cli.json_values import json_text
from tpu_export.cli.results import results

if TYPE_CHECKING:
    from tpu_export.exporter.progress import ProgressEvent
    from tpu_export.parity.export import ExportResult


class ProgressLines:
    """One line a stage, with its time; a spinner meanwhile when stderr is a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._status: AbstractContextManager[Any] | None = None

    def __call__(self, event: ProgressEvent) -> None:
        """Show an event."""
        if self._quiet:
            return
        if event.phase == "start":
            self._spin(f"{event.stage} {event.detail}".strip())
            return
        self._stop()
        click.echo(
            f"{event.stage:<10} {event.seconds:7.2f} s  {event.detail}", err=True
        )

    def _spin(self, text: str) -> None:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status(text)
            self._status.__enter__()

    def _stop(self) -> None:
        if self._status is not None:
            self._status.__exit__(None, None, None)
            self._status = None

    def close(self) -> None:
        """Take the spinner away, also after a failure."""
        self._stop()


def print_json(value: object) -> None:
    """Print one JSON object."""
    click.echo(json_text(value, default=str), file=results())


def size_text(size: float) -> str:
    """Return bytes for people: "18.7 MB"."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def print_table(lines: Sequence[Sequence[str]]) -> None:
    """Print aligned columns."""
    from tpu_export.parity.report import format_table

    click.echo(format_table(lines))


def estimate_lines(estimates: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the compiler's estimates as a table."""
    from tpu_export.runtime.signature import sizes_text

    header = ["signature", "topology", "HBM", "of", "GFLOP", "kilocycles", "µs"]
    rows = [
        [
            str(e["signature"]),
            f"{e['topology']} {sizes_text(e['dims'])}".rstrip(),
            size_text(e["hbm_used"]),
            size_text(e["hbm_total"]),
            f"{e['flops'] / 1e9:.2f}",
            f"{e['cycles'] / 1e3:.0f}",
            f"{e['microseconds']:.0f}",
        ]
        for e in estimates
    ]
    return [header, *rows]


def print_result(result: ExportResult) -> None:
    """Print what an export made: the proof, the estimates, the file."""
    if result.parity is None:
        click.echo("parity: not run (--no-parity)")
    else:
        print_table(result.parity.table())
    if result.estimates:
        click.echo(
            "\ncompiler's estimates, for one chip; nothing was measured on a TPU:"
        )
        print_table(estimate_lines(result.estimates))
    if result.quantization is not None:
        click.echo("\n" + "\n".join(result.quantization["text"]))
    for note in result.notes:
        click.echo(f"note: {note}")
    click.echo(f"\nwrote {result.output} ({size_text(result.size)})")
