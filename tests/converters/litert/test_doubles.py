"""Constants that a model computes in types LiteRT lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.errors import LiteRtUnsupportedOpsError


def positions(x: torch.Tensor) -> torch.Tensor:
    """As sinusoids of RT-DETR: float64 from a Python loop of sizes on."""
    n, size = x.shape
    rates = 1.0 / 10_000 ** (torch.arange(size, dtype=torch.float64) / size)
    angles = torch.arange(n, dtype=torch.float64)[:, None] * rates
    return x + torch.cat([angles.sin(), angles.cos()], 1)[:, ::2].to(torch.float32)


def rotations(x: torch.Tensor) -> torch.Tensor:
    """Cosines and sines as parts of complex numbers."""
    angles = torch.arange(x.shape[1], dtype=torch.float32)
    turns = torch.polar(torch.ones_like(angles), angles)
    return x * turns.real + x.flip(1) * turns.imag


def counted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A result that depends on no input, and one that is read twice."""
    steps = torch.linspace(0, 1, 7, dtype=torch.float64).float()
    return steps, (steps.sum() + x) * steps[:3]


@pytest.mark.parametrize("function", [positions, rotations, counted])
def test_constants_are_computed_before(
    right_in_both: Callable[..., LiteRtModel], function: Callable[..., Any]
) -> None:
    right_in_both(
        function, torch.randn(5, 3) if function is counted else torch.randn(5, 8)
    )


def test_what_depends_on_an_input_is_refused_as_before(
    right_in_both: Callable[..., LiteRtModel],
) -> None:
    with pytest.raises(LiteRtUnsupportedOpsError, match="complex"):
        right_in_both(lambda x: torch.polar(x.abs(), x).real, torch.randn(5))
