"""-v: the one switch for tracebacks of internal errors and for our own logging."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
    logger, handler = logging.getLogger("tpu_export"), _Lines()
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def turn_off() -> None:
        logger.removeHandler(handler)
        logger.setLevel(level)

    context.call_on_close(turn_off)
