"""Every way to fail as one clear message and an exit status."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from tpu_export.cli import verbosity
from tpu_export.cli.results import only_results
from tpu_export.runtime.errors import TpuExportError

# What the caller gave does not fit: the command line itself, a name in it (source, topology,
# bucket, device, signature, zoo model), or the inputs of `run`.
USAGE_CODES = frozenset(
    f"TPX-{number}"
    for number in (
        "0002",
        "0110",
        "0301",
        "0307",
        "0502",
        "0504",
        "0505",
        "0510",
        "0801",
    )
)


class UsageError(TpuExportError):
    """The command line does not say what to do."""

    code = "TPX-0002"


def writable_folder(name: str, option: str = "--output") -> Path:
    """Make the folder for results that an option names.

    Raises:
        UsageError: it cannot be made.
    """
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make {folder}: {error.strerror}", hint=f"choose another {option}"
        ) from error
    return folder


def run_safely(command: click.Command, argv: Sequence[str]) -> int:
    """Run a command; returns the exit status and never shows a bare traceback."""
    as_json = "--json" in argv
    told = verbosity.start()
    try:
        with only_results() if as_json else nullcontext(), verbosity.without_noise():
            status = command.main(
                args=list(argv), prog_name="tpu-export", standalone_mode=False, obj=told
            )
    except TpuExportError as error:
        _tell(error.code, error.message, error.hint, as_json=as_json)
        return 2 if error.code in USAGE_CODES else 1
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        hint = f"see `{context.command_path if context else 'tpu-export'} --help`"
        _tell(UsageError.code, error.format_message(), hint, as_json=as_json)
        return 2
    except (KeyboardInterrupt, click.Abort):
        print("interrupted; no partial file was left", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # the last line of defence
        return _internal(error, verbose=told.tracebacks, as_json=as_json)
    # Without standalone mode click returns the status that a command exits with.
    return status if isinstance(status, int) else 0


def _internal(error: Exception, *, verbose: bool, as_json: bool) -> int:
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno}"
    lines = str(error).strip().splitlines() or [""]
    _tell(
        TpuExportError.code,
        f"internal error, {type(error).__name__} at {place}: {lines[0]}",
        "this is a fault of tpu-export: please report it; TPU_EXPORT_TRACEBACK=1 shows more",
        as_json=as_json,
    )
    if verbose:
        traceback.print_exception(error)
    return 1


def _tell(code: str, message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        found = {"code": code, "message": message, "hint": hint}
        print(json.dumps({"error": found}))
    else:
        print(f"error[{code}]: {message}\n  {hint}", file=sys.stderr)
