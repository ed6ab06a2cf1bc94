"""What can go wrong on the way to a .tflite."""

from __future__ import annotations

from collections.abc import Sequence

from tpu_export.runtime.errors import TpuExportError


class LiteRtUnsupportedOpsError(TpuExportError):
    """Ops that LiteRT cannot hold, cannot run, or computes wrongly: all at once."""

    code = "TPX-0601"

    def __init__(self, problems: Sequence[str]) -> None:
        """List each op with its reason and place."""
        super().__init__(
            f"LiteRT cannot take {len(problems)} op(s): {'; '.join(problems)}",
            hint="replace the op, give it a rule for LiteRT with "
            '@tpu_export.lowers(op, target="litert"), or export for cloud-tpu only',
        )


class LiteRtConversionError(TpuExportError):
    """The converter refused the program for a reason of its own."""

    code = "TPX-0602"


class LiteRtCrashedError(TpuExportError):
    """The converter or an engine died."""

    code = "TPX-0603"


class LiteRtUnloadableError(TpuExportError):
    """A converted file that an engine cannot load or run; it is not written."""

    code = "TPX-0604"


class LiteRtMismatchError(TpuExportError):
    """A converted file that computes something else than the program; it is not written."""

    code = "TPX-0605"


class LiteRtInputError(TpuExportError):
    """A call whose inputs do not fit the .tflite's signature."""

    code = "TPX-0606"


class LiteRtNanError(TpuExportError):
    """The trial has NaN, which LiteRT's kernels lose; nothing is written."""

    code = "TPX-0608"
