"""StableHLO to .tflite, in worker processes, tried out in both LiteRT engines.

The names are resolved on first use: the workers import this package too, and must load
neither torch nor jax.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpu_export.converters.litert.conversion import build as build
    from tpu_export.converters.litert.conversion import convert as convert
    from tpu_export.converters.litert.model import LiteRtModel as LiteRtModel

_HOME = {"build": "conversion", "convert": "conversion", "LiteRtModel": "model"}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
