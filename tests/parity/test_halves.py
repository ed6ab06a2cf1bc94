"""Limits of what is computed in half types: by what is before an output, not by its dtype."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tpu_export as tx
from tpu_export.exporter.capture import capture
from tpu_export.parity.check import parity
from tpu_export.parity.halves import half_limits

X = torch.randn(2, 4)
F16, BF16 = torch.float16, torch.bfloat16


def branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda y: (y.to(F16) * 2).float(), torch.sin, (x,))


def twice(x: torch.Tensor) -> Any:
    return (x.to(BF16) * 2).float(), x.half().sum()


def with_a_number(x: torch.Tensor) -> Any:
    return x.half().float(), 3, x.half().to(BF16).float()


class Stored(nn.Module):
    """Weights in a half type, which float32 holds exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, dtype=BF16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.float()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda x: x * 2, {}),
        (Stored(), {}),
        (lambda x: (x.to(BF16) * 2, x * 2), {"output_0": 5e-2}),
        (twice, {"output_0": 5e-2, "output_1": 1e-2}),
        (with_a_number, {"output_0": 1e-2, "output_2": 5e-2}),
        (branches, {"output_0": 1e-2}),
    ],
    ids=["none", "stored", "one of two", "after a cast", "of two", "in a branch"],
)
def test_limits(model: Callable[..., Any], expected: dict[str, float]) -> None:
    captured = capture(model, (X,))
    found = half_limits(captured, captured.signature)
    outputs = {spec.name for spec in captured.signature.outputs}
    assert {n: limit for n, limit in found.items() if n in outputs} == expected


class Logits(nn.Module):
    """A model in bfloat16 whose last step is float32, and a buffer of the same."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)) for _ in range(4))
        ).to(BF16)
        self.register_buffer("seen", torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x.to(BF16)).float()
        self.seen += y.sum(0)
        return y


def test_a_model_that_ends_in_float(tmp_path: Path) -> None:
    x = torch.randn(8, 64)
    path = tmp_path / "m.tpuexe"
    result = tx.export(Logits(), (x,), topologies=(), output=path)
    assert result.parity is not None
    assert {row.threshold for row in result.parity.rows} == {5e-2}
    assert {row.threshold for row in parity(path).rows} == {5e-2}
    strict = parity(Logits(), (x,), artifact=path, tolerance=1e-9)
    assert not strict.passed
