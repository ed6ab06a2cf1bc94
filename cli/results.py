"""Standard output that holds the command's JSON and nothing that a model prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import TextIO

_RESULTS: ContextVar[TextIO | None] = ContextVar("results", default=None)


def results() -> TextIO | None:
    """Return where JSON goes; None is standard output as it is."""
    return _RESULTS.get()


@contextmanager
def only_results() -> Iterator[None]:
    """Turn all else that is written to standard output to standard error.

    The descriptor too: model files, their libraries and workers write past sys.stdout.
    """
    if sys.stdout is None or sys.stderr is None:  # closed by the caller
        yield
        return
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as kept:
        token = _RESULTS.set(kept)
        os.dup2(2, 1)
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            if sys.__stdout__ is not None:
                sys.__stdout__.flush()
            os.dup2(kept.fileno(), 1)
            _RESULTS.reset(token)
