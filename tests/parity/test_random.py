"""A model that draws random numbers: the note says whether dropout may be left on."""

from __future__ import annotations

import pytest
import torch

from tpu_export.parity.check import parity


class Noise(torch.nn.Module):
    """Draws in either mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


@pytest.mark.parametrize("training", [True, False])
def test_training_mode_is_named(training: bool) -> None:
    report = parity(Noise().train(training), (torch.ones(2),))
    assert {row.passed for row in report.rows} == {None}
    for row in report.rows:
        assert "draws random numbers" in row.note
        assert ("call .eval()" in row.note) is training
