"""A module around a captured model that has the model's own buffers, by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tpu_export.exporter.capture import Captured, Example
from tpu_export.runtime.signature import Signature, TensorSpec


class Wrapped(torch.nn.Module):
    """Stands before the model of a signature; what it computes is its subclass's."""

    _model: Any

    def __init__(self, captured: Captured) -> None:
        """Keep the model, not as a submodule: names stay."""
        super().__init__()
        self.__dict__["_model"] = captured.eager
        self.training = getattr(captured.eager, "training", False)

    def modules(self, remove_duplicate: bool = True) -> Iterator[torch.nn.Module]:
        """Give the model's."""
        owner = getattr(self._model, "__self__", self._model)
        if isinstance(owner, torch.nn.Module):
            return owner.modules(remove_duplicate)
        return iter(())

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Give the model's, by its names."""
        if isinstance(self._model, torch.nn.Module):
            return self._model.named_buffers(*args, **kwargs)
        return iter(())

    def get_buffer(self, target: str) -> torch.Tensor:
        """Return one of the model's."""
        if isinstance(self._model, torch.nn.Module):
            return self._model.get_buffer(target)
        raise AttributeError(target)


def mapped(
    signature: Signature,
    example: Example,
    change: Callable[[torch.Tensor, TensorSpec], torch.Tensor],
) -> Example:
    """Return torch's arguments with each tensor as `change` makes it, given its input."""
    leaves, tree = pytree.tree_flatten(example)
    specs = iter(signature.inputs)
    own = [
        change(leaf, next(specs)) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
    ]
    args, kwargs = pytree.tree_unflatten(own, tree)
    return args, kwargs
