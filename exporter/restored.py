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
                if not _is_expanded(tensor):
                    tensor.copy_(values[name])


def _is_expanded(tensor: torch.Tensor) -> bool:
    """Whether elements share memory by a stride of 0: torch writes to no such tensor."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in pairs)
