"""tpu-export explain CODE."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import click

from tpu_export.cli.failures import UsageError

PAGES = Path(__file__).with_name("errors.md")


def pages() -> dict[str, str]:
    """Return the page of every error code."""
    parts = re.split(r"^## (?=TPX-\d{4} )", PAGES.read_text(), flags=re.MULTILINE)
    return {part[:8]: part.strip() for part in parts[1:]}


@click.command("explain")
@click.argument("code")
def command(code: str) -> None:
    """Print the page of an error code such as TPX-0201."""
    known = pages()
    wanted = code.upper()
    wanted = wanted if wanted.startswith("TPX-") else f"TPX-{wanted.zfill(4)}"
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=3)
        raise UsageError(
            f"no error code {code!r}", hint=f"near ones: {', '.join(near) or 'none'}"
        )
    click.echo(known[wanted])
