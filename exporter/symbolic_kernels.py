"""Kernels of torch that would fix a dynamic size, written so that they do not.

torch's own read sizes as plain integers, which makes them constants of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten
_IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd


def _max_pool1d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Tensor:
    kernel, step, edge, gap = (
        (neutral, value if isinstance(value, int) else value[0])
        for neutral, value in (
            (1, kernel_size), (1, stride or kernel_size), (0, padding), (1, dilation),
        )
    )  # fmt: skip
    return F.max_pool2d(
        x.unsqueeze(-2), kernel, step, edge, gap, ceil_mode=ceil_mode
    ).squeeze(-2)


def _take_along_dim(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return x.flatten().gather(0, indices.flatten())
    if x.dim() != indices.dim():
        message = (
            "torch.take_along_dim(): input and indices should have the same number of "
            f"dimensions, but got {x.dim()} and {indices.dim()} dimensions"
        )
        raise RuntimeError(message)
    dim %= x.dim()
    shape = torch.broadcast_shapes(_without(x, dim), _without(indices, dim))
    sizes = [[*shape[:dim], t.shape[dim], *shape[dim + 1 :]] for t in (x, indices)]
    return x.expand(sizes[0]).gather(dim, indices.expand(sizes[1]))


def _without(x: Tensor, dim: int) -> tuple[int, ...]:
    return (*x.shape[:dim], 1, *x.shape[dim + 1 :])


SYMBOLIC = (
    (aten.max_pool1d.default, _max_pool1d),
    (aten.take_along_dim.default, _take_along_dim),
)


@contextmanager
def forgotten(ops: Sequence[Any]) -> Iterator[None]:
    """Let ops look up their kernels anew inside the block, and again after it.

    They keep the ones that an earlier export of the process found.
    """
    for op in ops:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op in ops:
            op._dispatch_cache.clear()


@contextmanager
def kernels(table: Sequence[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
    """Use these kernels in place of torch's inside the block."""
    before = [op.py_kernels.get(_IMPLICIT) for op, _ in table]
    for op, kernel in table:
        op.py_kernels[_IMPLICIT] = kernel
    try:
        with forgotten([op for op, _ in table]):
            yield
    finally:
        for (op, _), kernel in zip(table, before, strict=True):
            if kernel is None:
                del op.py_kernels[_IMPLICIT]
            else:
                op.py_kernels[_IMPLICIT] = kernel
