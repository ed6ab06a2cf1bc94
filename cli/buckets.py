"""--bucket NAME=SIZES of the command line, and buckets of pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tpu_export.cli.failures import UsageError

_FORM = "write --bucket batch=1,8,32; repeat it for another dimension"


def buckets(given: Sequence[str], settings: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the sizes to compile for, by dimension; the command line's win.

    Raises:
        UsageError: a text is no NAME=SIZES, or the settings are no table.
    """
    if not given:
        return _configured(settings.get("buckets", {}))
    found: dict[str, list[int]] = {}
    for text in given:
        name, equals, sizes = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--bucket {text} names no dimension", hint=_FORM)
        found.setdefault(name.strip(), []).extend(map(_size, sizes.split(",")))
    return found


def _size(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
        raise UsageError(f"{text.strip()!r} is no size of a bucket", hint=_FORM)
    return int(text)


def _configured(table: Any) -> dict[str, list[int]]:
    if not isinstance(table, Mapping):
        raise UsageError(
            "buckets of pyproject.toml are no table",
            hint="write buckets = { batch = [1, 8, 32] }",
        )
    return {
        name: [sizes] if isinstance(sizes, int) else sizes
        for name, sizes in table.items()
    }
