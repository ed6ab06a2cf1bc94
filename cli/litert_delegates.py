"""What this host's LiteRT can accelerate of a .tflite, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tpu_export.cli.failures import UsageError
from tpu_export.cli.litert_selftest import need_litert
from tpu_export.cli.output import print_json, print_table
from tpu_export.runtime.errors import counted

if TYPE_CHECKING:
    from tpu_export.converters.litert.delegates import Delegates


def show(path: Path, *, as_json: bool) -> None:
    """Try the delegates of the wheel on a file, and print what they say.

    Raises:
        UsageError: no such file, or the extra is missing.
    """
    need_litert()
    if not path.is_file():
        raise UsageError(f"no file {path}", hint="name a .tflite")
    from tpu_export.converters.litert.delegates import delegates

    found = delegates(path)
    if as_json:
        print_json(asdict(found))
    else:
        print_table(rows(found))


def rows(found: Delegates) -> list[list[str]]:
    """Return the table, also for `inspect`."""
    pieces = f"in {counted(found.partitions, 'partition')}"
    compilers = [[f"compile for {k}", v] for k, v in found.compilers.items()]
    return [
        [
            "XNNPACK takes, of the first signature",
            f"{_ops(found.taken)} {pieces}".strip(),
        ],
        ["plain kernels run, of it", _ops(found.left)],
        *([f"CompiledModel on {k}", v] for k, v in found.accelerators.items()),
        *compilers,
    ]


def _ops(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "nothing"
