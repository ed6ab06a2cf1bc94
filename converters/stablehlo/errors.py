"""The error of rules that meet an option which they cannot lower."""

from __future__ import annotations

from tpu_export.runtime.errors import TpuExportError


class UnsupportedOptionError(TpuExportError):
    """An op has a rule, but not for this combination of arguments."""

    code = "TPX-0290"
