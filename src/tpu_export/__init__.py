"""Export PyTorch models to Cloud TPU executables and LiteRT, and prove them right.

Public names are resolved on first use, so that ``import tpu_export`` loads
neither torch nor jax and a serving process pays only for the runtime.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tpu_export.converters.litert import LiteRtModel as LiteRtModel
    from tpu_export.converters.stablehlo.custom import lowers as lowers
    from tpu_export.exporter.capture import Captured as Captured
    from tpu_export.exporter.capture import capture as capture
    from tpu_export.exporter.stages import Compiled as Compiled
    from tpu_export.exporter.stages import Lowered as Lowered
    from tpu_export.parity.check import parity as parity
    from tpu_export.parity.debug import debug as debug
    from tpu_export.parity.export import export as export
    from tpu_export.parity.litert import to_litert as to_litert
    from tpu_export.parity.litert_options import LiteRtOptions as LiteRtOptions
    from tpu_export.parity.report import ParityReport as ParityReport
    from tpu_export.runtime import errors as errors
    from tpu_export.runtime.program import Program as Program
    from tpu_export.runtime.program import load as load

_HOME = {
    "Captured": "exporter.capture",
    "Compiled": "exporter.stages",
    "LiteRtModel": "converters.litert",
    "LiteRtOptions": "parity.litert_options",
    "Lowered": "exporter.stages",
    "ParityReport": "parity.report",
    "Program": "runtime.program",
    "capture": "exporter.capture",
    "debug": "parity.debug",
    "export": "parity.export",
    "load": "runtime.program",
    "lowers": "converters.stablehlo.custom",
    "parity": "parity.check",
    "to_litert": "parity.litert",
}
_MODULES = ("errors",)

__all__ = sorted([*_HOME, *_MODULES, "__version__"])


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"tpu_export.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"tpu_export.runtime.{name}")
    message = f"module 'tpu_export' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return __all__
