"""Further inputs for parity: like the example, drawn from a seed, of other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch.export.graph_signature import ConstantArgument
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from tpu_export.exporter.capture import Captured
from tpu_export.exporter.signature import user_arguments
from tpu_export.runtime.stablehlo import static_shape

Example: TypeAlias = tuple[tuple[object, ...], dict[str, object]]


def second_inputs(captured: Captured, seed: int) -> Example:
    """Return (args, kwargs) with the example's structure, shapes and dtypes.

    Floats are normal with the example's mean and deviation, integers uniform within its
    least and greatest value (so indices stay in range), booleans fair. Inputs that were
    nowhere negative stay so, and constants and infinities stay.
    """
    generator = torch.Generator().manual_seed(seed)
    args, kwargs = tree_map_only(
        torch.Tensor, lambda t: _like(t, generator), captured.example
    )
    return args, kwargs


def resized(captured: Captured, inputs: Example, sizes: Mapping[str, int]) -> Example:
    """Return inputs whose dynamic dimensions have these sizes: repeated, then cut.

    So indices stay in range, and rows of a mask keep what they see.
    """
    leaves, tree = tree_flatten(inputs)
    specs = iter(captured.signature.inputs)
    made = [
        leaf
        if isinstance(argument, ConstantArgument)
        else _repeated(leaf, static_shape(next(specs).shape, sizes))
        for leaf, argument in zip(leaves, user_arguments(captured.program), strict=True)
    ]
    args, kwargs = tree_unflatten(made, tree)
    return tuple(args), dict(kwargs)


def _repeated(leaf: object, shape: tuple[int, ...]) -> object:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    for axis, size in enumerate(shape):
        if size != leaf.shape[axis]:
            places = torch.arange(size) % max(leaf.shape[axis], 1)
            leaf = leaf.index_select(axis, places)
    return leaf.detach()


def _like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    shape, dtype = tensor.shape, tensor.dtype
    if tensor.numel() == 0:
        return tensor.detach().clone()
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_complex:
        parts = torch.view_as_real(tensor.detach().resolve_conj())
        return torch.view_as_complex(_like(parts, generator))
    if not dtype.is_floating_point:
        values = tensor.detach().to(torch.int64)
        low, high = int(values.min()), int(values.max())
        drawn = torch.randint(low, min(high + 1, 2**63 - 1), shape, generator=generator)
        return drawn.to(dtype)
    return _normal(tensor, generator)


def _normal(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw from the distribution of the finite values; a mask's infinities stay."""
    values = tensor.detach().to(torch.float64)
    finite = values[values.isfinite()]
    if finite.numel() == 0:
        return tensor.detach().clone()
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    drawn = drawn * finite.std(correction=0) + finite.mean()
    if finite.min() >= 0:  # the model may take a root or a logarithm
        drawn = drawn.abs()
    return torch.where(values.isfinite(), drawn, values).to(tensor.dtype)
