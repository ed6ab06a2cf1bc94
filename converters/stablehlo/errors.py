"""Errors that several files of the lowering raise."""

from __future__ import annotations

from tpu_export.runtime.errors import TpuExportError


class UnsupportedOptionError(TpuExportError):
    """An op has a rule, but not for this combination of arguments."""

    code = "TPX-0290"


class UnsupportedWriteError(TpuExportError):
    """What the model writes to memory cannot be told as values."""

    code = "TPX-0208"
