"""Every error that a user can meet has its own code and page."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator

import tpu_export
from tpu_export.cli.explain import pages
from tpu_export.runtime.errors import TpuExportError

# Modules that only run as processes of their own.
WORKERS = (
    "tpu_export.converters.litert.adapter",
    "tpu_export.converters.litert.worker",
)


def errors(
    kind: type[TpuExportError] = TpuExportError,
) -> Iterator[type[TpuExportError]]:
    if kind.__module__.startswith("tpu_export."):
        yield kind
    for child in kind.__subclasses__():
        yield from errors(child)


def test_codes_are_unique_and_each_has_a_page() -> None:
    for module in pkgutil.walk_packages(tpu_export.__path__, "tpu_export."):
        if module.name not in WORKERS:
            importlib.import_module(module.name)
    codes = Counter(kind.code for kind in errors())
    assert [code for code, count in codes.items() if count > 1] == []
    assert set(codes) == set(pages())


def test_each_page_says_more_than_one_line() -> None:
    lines = {code: page.splitlines()[1:] for code, page in pages().items()}
    said = {code: [line for line in body if line] for code, body in lines.items()}
    assert {code: body for code, body in said.items() if len(body) < 2} == {}
    # The longest page is some paragraphs: more is text that belongs to another page.
    assert {code: len(body) for code, body in said.items() if len(body) > 12} == {}
