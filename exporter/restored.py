"""A model that is called and left as it was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch


@contextmanager
def restored(
    function: Callable[..., object], tensors: Mapping[str, torch.Tensor]
) -> Iterator[Mapping[str, torch.Tensor]]:
    """Give copies of tensors, and put back their values and all attributes after.

    Args:
        function: a module, a method of one, or a plain function.
        tensors: what calls may write to, by name.
    """
    values = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    owner = getattr(function, "__self__", function)
    modules = list(owner.modules()) if isinstance(owner, torch.nn.Module) else []
    slots = [(m.__dict__, dict(m.__dict__)) for m in modules]
    slots += [(m._buffers, dict(m._buffers)) for m in modules]
    try:
        yield values
    finally:
        for kept, before in slots:
            kept.clear()
            kept.update(before)
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(values[name])
