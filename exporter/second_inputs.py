"""A second set of inputs for parity: like the example, drawn from a seed."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch.utils._pytree import tree_map_only

from tpu_export.exporter.capture import Captured

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
