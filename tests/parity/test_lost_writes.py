"""What eager writes and a program does not is a failure, not left out of the comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.exporter.capture import capture
from tpu_export.parity.eager import Call, Run, Sample, run_eager
from tpu_export.parity.ladder import compare_rung


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Writer(Counter):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        x.mul_(2)
        return x * 1


class Stateless:
    """Gives the right outputs, and keeps nothing."""

    name = "stateless"

    def run(self, signature: object, samples: list[Sample]) -> Run:
        arrays = [np.asarray(s.args[0]) for s in samples]
        return Run(tuple(Call((a * 2,), (a,)) for a in arrays), {})


@pytest.mark.parametrize(
    ("model", "failed"),
    [(Counter(), []), (Writer(), ["input.x", "state.calls"])],
    ids=["pure", "writes"],
)
def test_a_lost_write_fails(model: nn.Module, failed: list[str]) -> None:
    captured = replace(capture(Counter(), (torch.ones(3),)), model=model)
    samples = [Sample("example", (torch.ones(3),), {})]
    reference = run_eager(captured, {}, samples)
    rows = compare_rung(captured.signature, reference, Stateless(), samples)
    assert [row.output for row in rows if not row.passed] == failed
    assert torch.equal(model.calls, torch.zeros(2))
