"""What the Python API takes for a model, as captured signatures."""

from __future__ import annotations

from collections.abc import Mapping
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
        return dict(model)
    if not isinstance(model, Captured):
        model = capture(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    return {model.name: model}
