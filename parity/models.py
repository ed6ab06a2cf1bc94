"""What the Python API takes for a model, as captured signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.sources import Source


def captures(
    model: Any, args: Any, kwargs: Any, dynamic_shapes: Any
) -> dict[str, Captured]:
    """Return the signatures of a source, of captured ones by name, of one, or of a model."""
    if isinstance(model, Source):
        return dict(model.captures())
    if isinstance(model, Mapping):
        return {name: _named(captured, name) for name, captured in model.items()}
    if not isinstance(model, Captured):
        model = capture(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    return {model.name: model}


def _named(captured: Captured, name: str) -> Captured:
    return replace(
        captured, name=name, signature=replace(captured.signature, name=name)
    )
