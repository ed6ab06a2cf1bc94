"""-v: the one switch for tracebacks of internal errors and for our own logging."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

# Torch's words about itself: what it warns its own code of, and fails at while it tries.
_INTERNALS = r"(torch|copyreg)\b"
_NOISY = logging.getLogger("torch._subclasses.fake_tensor")


@dataclass
class Verbosity:
    """What `-v` turned on during one run of the command line."""

    tracebacks: bool = False


class _Lines(logging.Handler):
    """Log lines to standard error as it is now, so that a spinner gives way."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(self.format(record), err=True)


def start() -> Verbosity:
    """Return what holds without `-v`."""
    return Verbosity(tracebacks="TPU_EXPORT_TRACEBACK" in os.environ)


@contextmanager
def without_noise() -> Iterator[None]:
    """Keep torch's words about its internals off standard error, unless there is `-v`."""
    disabled = (
        _NOISY.disabled
    )  # a level would not do: torch sets levels when it is imported
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=_INTERNALS)
            _NOISY.disabled = True
            yield
    finally:
        _NOISY.disabled = disabled


def verbose_option(command: F) -> F:
    """Give a command `-v`."""
    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        is_eager=True,  # also when a later option is wrong
        callback=_turn_on,
        help="Show our log, all that the compiler says, and tracebacks of internal errors.",
    )(command)


def _turn_on(context: click.Context, _: click.Parameter, value: bool) -> None:
    if not value:
        return
    context.ensure_object(Verbosity).tracebacks = True
    warnings.filterwarnings("default", module=_INTERNALS)
    _NOISY.disabled = False
    logger, handler = logging.getLogger("tpu_export"), _Lines()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def turn_off() -> None:
        logger.removeHandler(handler)
        logger.setLevel(level)

    context.call_on_close(turn_off)
