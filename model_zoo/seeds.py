"""Seeded weights and inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a module with random weights from a seed, in eval mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().eval()


def calibrated(model: nn.Module, *inputs: torch.Tensor) -> nn.Module:
    """Set batch-norm statistics from the inputs, so that activations keep scale."""
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = None  # the plain average over the pass
        norm.train()
    with torch.no_grad():
        model(*inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model.eval()


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return standard normal values."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int, limit: int, seed: int = 0) -> torch.Tensor:
    """Return token ids below `limit`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, limit, shape, generator=generator)
