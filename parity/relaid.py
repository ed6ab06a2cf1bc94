"""A captured signature whose images have their channels last: example, reference and all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.layout.borders import Borders
from tpu_export.converters.stablehlo.layout.forms import from_last, to_last
from tpu_export.exporter.capture import Captured, Example
from tpu_export.parity.eager import Array, flatten_like
from tpu_export.parity.samples import Second
from tpu_export.parity.wrapped import Wrapped, mapped
from tpu_export.runtime.signature import Signature, TensorSpec


def relaid(captured: Captured, borders: Borders) -> Captured:
    """Return the signature with such inputs and outputs; its outputs are a flat tuple."""
    leaves: list[dict[str, object]] = [
        {"leaf": i} for i in range(len(captured.signature.outputs))
    ]
    signature = borders.signature(captured.signature)
    return replace(
        captured,
        signature=replace(signature, output_tree={"tuple": leaves}),
        example=to_file(captured.signature, borders, captured.example),
        model=Relaid(captured, borders),
        borders=borders,
    )


def to_file(signature: Signature, borders: Borders, example: Example) -> Example:
    """Return torch's arguments with channels last where the file has them so."""
    args, kwargs = _moved(signature, borders, example, to_last)
    return tuple(args), dict(kwargs)


def relaid_second(second: Second | None, captured: Mapping[str, Captured]) -> Any:
    """Return what draws second inputs of the signatures as the file takes them.

    Args:
        second: draws those that torch takes; captured: the signatures before.
    """
    if second is None:
        return None

    def draw(own: Captured, seed: int) -> Example:
        plain = captured[own.name]
        return to_file(plain.signature, own.borders, second(plain, seed))

    return draw


def as_the_file(captured: Captured, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return arrays in torch's layout, by input, as the file takes them."""
    moved = captured.borders.inputs
    return {
        name: np.moveaxis(np.asarray(array), 1, -1) if name in moved else array
        for name, array in inputs.items()
    }


class Relaid(Wrapped):
    """Torch eager between inputs and outputs of the file."""

    def __init__(self, captured: Captured, borders: Borders) -> None:
        """Stand before the model of a signature."""
        super().__init__(captured)
        self._signature, self._borders = captured.signature, borders

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the model on inputs as torch has them; what it writes to them is kept."""
        signature, borders = self._signature, self._borders
        own = _moved(signature, borders, (args, kwargs), from_last)
        result = self._model(*own[0], **own[1])
        given = pytree.tree_leaves((args, kwargs))
        for x, y in zip(given, pytree.tree_leaves(own), strict=True):
            if isinstance(x, torch.Tensor) and x is not y:
                x.copy_(y.permute(to_last(y.ndim)))
        outputs = flatten_like(signature.output_tree, result)
        return tuple(
            y.permute(to_last(y.ndim)) if spec.name in borders.outputs else y
            for spec, y in zip(signature.outputs, outputs, strict=True)
        )


def _moved(
    signature: Signature,
    borders: Borders,
    example: Example,
    order: Callable[[int], Sequence[int]],
) -> Example:
    def change(x: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
        if spec.name not in borders.inputs:
            return x
        return x.permute(tuple(order(x.ndim))).contiguous()

    return mapped(signature, example, change)
