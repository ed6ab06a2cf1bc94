"""Exported programs from .pt2 files.

torch.export.load can run code that the file carries: read only files that you trust.
"""

from __future__ import annotations

import logging
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.ao.quantization.fx._decomposed  # registers the ops of PT2E
from torch.export import ExportedProgram

from tpu_export.runtime.errors import TpuExportError


class ProgramFileError(TpuExportError):
    """A .pt2 file is missing, damaged, or of another kind or version."""

    code = "TPX-0106"


class UnregisteredTypeError(TpuExportError):
    """A .pt2 file uses a container class that this process has not registered."""

    code = "TPX-0107"


def load_program(path: Path) -> ExportedProgram:
    """Read a .pt2 file.

    Raises:
        ProgramFileError: the file is missing or no program of this torch.
        UnregisteredTypeError: the file's inputs or outputs have an unknown class.
    """
    if not path.is_file():
        raise ProgramFileError(
            f"no file {path}", hint="give the path of a file from torch.export.save()"
        )
    logged: list[BaseException] = []
    try:
        with _logged_errors(logged):
            return torch.export.load(path)
    except Exception as error:  # torch documents no set of errors
        cause = logged[-1] if logged else error
        found = re.search(
            r"Deserializing (\S+) in pytree is not registered", str(cause)
        )
        if found:
            name = found[1]
            raise UnregisteredTypeError(
                f"{path} needs {name}, which is not registered with torch's pytrees",
                hint=_registering(name),
            ) from cause
        if missing_class := _missing_class(cause):
            what, hint = missing_class
            raise ProgramFileError(f"{path} needs {what}", hint=hint) from cause
        if missing := _undefined_op(str(cause)):
            if missing.startswith("torch.ops.torchao.") and _import_torchao():
                return load_program(path)
            raise ProgramFileError(
                f"{path} calls {missing}, which nothing that is imported defines",
                hint="import the library of that op in a model.py whose get_model() returns "
                f"torch.export.load({path.name!r}), and export that",
            ) from cause
        raise ProgramFileError(
            f"{path} cannot be read as an exported program: {_first_line(cause)}",
            hint="the file is damaged, or comes from another torch: save it again with "
            f"torch.export.save() of torch {torch.__version__.partition('+')[0]}",
        ) from cause


@contextmanager
def _logged_errors(found: list[BaseException]) -> Iterator[None]:
    """Collect what torch.export.load only logs: its exception says to look there."""

    def collect(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            found.append(record.exc_info[1])
        return False

    logger = logging.getLogger("torch.export")
    logger.addFilter(collect)
    try:
        yield
    finally:
        logger.removeFilter(collect)


def _registering(name: str) -> str:
    module = name.rpartition(".")[0]
    return (
        f"first import the module that registers it (import {module}), or export again "
        "with plain dicts and tuples"
    )


def _missing_class(error: BaseException) -> tuple[str, str] | None:
    """Say which class of a library a file's tensors have, and what to do; None for others."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        return (
            f"the module {error.name}, which is not installed",
            f"install {package} (pip install {package}), in the version that saved the file",
        )
    found = re.search(r"Can't get attribute '(\w+)' on <module '([\w.]+)'", str(error))
    if not isinstance(error, AttributeError) or found is None:
        return None
    package = found[2].partition(".")[0]
    return (
        f"{found[2]}.{found[1]}, which the installed {package} does not have",
        f"install {package} in the version that saved the file",
    )


def _undefined_op(message: str) -> str | None:
    """Return the op that torch cannot find: "torch.ops.mylib.scale.default"."""
    found = re.search(r"target='torch\.ops\.(\w+)\.(\w+)(\.\w+)?'", message)
    if found is None or hasattr(getattr(torch.ops, found[1]), found[2]):
        return None
    return found[0].removeprefix("target=").strip("'")


def _import_torchao() -> bool:
    """Register torchao's ops; tell whether that is new."""
    if "torchao" in sys.modules or find_spec("torchao") is None:
        return False
    import_module("torchao.quantization")
    return True


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return textwrap.shorten(lines[0], 300) if lines else type(error).__name__
