"""Tiny random models of many transformers architectures: what a converter must survive.

Each builder gives (model, kwargs); configs keep what makes an architecture special
(grouped queries, windows, experts, relative positions) and shrink the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tpu_export.model_zoo.tiny import Architecture
from tpu_export.model_zoo.tiny_language import LANGUAGE
from tpu_export.model_zoo.tiny_signals import SIGNALS
from tpu_export.model_zoo.tiny_vision import VISION

BUILDERS: dict[str, Callable[[], Architecture]] = {
    builder.__name__: builder for builder in (*VISION, *LANGUAGE, *SIGNALS)
}


def reference(model: torch.nn.Module, inputs: Mapping[str, object]) -> Any:
    """Return what the model gives in torch eager."""
    with torch.no_grad():
        return model(**inputs)
