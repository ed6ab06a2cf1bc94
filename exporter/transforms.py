"""torch.func and torch.autograd inside forward(), which torch.export's graph may lose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor
from torch._C import _functorch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram

# What torch says where it cannot trace derivatives above its dispatcher.
TRANSFORM = re.compile(
    r"functorch|has no attribute 'constant'|fake tensor in the exported program constant"
)

LOST = "stands as a constant for what torch.func or torch.autograd differentiates"


def lost_argument(program: ExportedProgram) -> str | None:
    """Return a constant of the graph that stands for what a derivative was taken of."""
    for name, value in program.constants.items():
        wrapped = isinstance(value, Tensor) and _functorch.is_functorch_wrapped_tensor(
            value
        )
        if wrapped or isinstance(value, FakeTensor):
            return str(name)
    return None


def whole(program: ExportedProgram) -> ExportedProgram:
    """Return a program that lost no argument.

    Raises:
        RuntimeError: in words that TRANSFORM knows, as torch's own.
    """
    if name := lost_argument(program):
        raise RuntimeError(f"{name} (functorch) {LOST}")
    return program


@contextmanager
def same_transforms() -> Iterator[None]:
    """Leave none of torch.func's transforms on: torch.export does where it fails in one."""
    depth = _functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
