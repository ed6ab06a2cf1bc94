"""Options of --target litert: what goes into the .tflite besides the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

OPTIONS = (
    click.option(
        "--labels",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="litert: labels of the classes, one on each line, to write into the file.",
    ),
    click.option(
        "--licence",
        metavar="TEXT|FILE",
        help="litert: licence of the model, to write into the file.",
    ),
    click.option(
        "--golden",
        type=click.Choice(["auto", "all", "none"]),
        default="auto",
        show_default=True,
        help="litert: whether the file gets the example's inputs and outputs; auto: up to "
        "1 % of it, or 64 KiB.",
    ),
)
NAMES = ("labels", "licence", "golden")


def read_annotations(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options out of the others, as fields of LiteRtOptions; {} without any."""
    labels, licence, golden = (options.pop(name) for name in NAMES)
    if labels is None and licence is None and golden == "auto":
        return {}
    from tpu_export.parity.annotations import Annotations

    own = Path(licence) if licence and _is_file(licence) else licence
    return {"annotations": Annotations(labels, own, golden)}


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a long text is no path
        return False
