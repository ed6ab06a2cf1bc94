"""Exported programs from .pt2 files.

torch.export.load can run code that the file carries: read only files that you trust.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
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
    try:
        return torch.export.load(path)
    except Exception as error:  # torch documents no set of errors
        name = _unregistered(error)
        if name is not None:
            raise UnregisteredTypeError(
                f"{path} needs {name}, which is not registered with torch's pytrees",
                hint=_registering(name),
            ) from error
        raise ProgramFileError(
            f"{path} cannot be read as an exported program: {_first_line(error)}",
            hint="the file is damaged, or comes from another torch: save it again with "
            f"torch.export.save() of torch {torch.__version__.partition('+')[0]}",
        ) from error


def _unregistered(error: BaseException) -> str | None:
    seen: BaseException | None = error
    while seen is not None:
        text = str(seen)
        if "serialized" in text or "pytree" in text or "not registered" in text:
            found = re.search(r"([A-Za-z_][\w]*(?:\.[A-Za-z_]\w*)+)", text)
            return found[1] if found else text
        seen = seen.__cause__ or seen.__context__
    return None


def _registering(name: str) -> str:
    module = name.rpartition(".")[0]
    return (
        f"first import the module that registers it (import {module}), or export again "
        "with plain dicts and tuples"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
