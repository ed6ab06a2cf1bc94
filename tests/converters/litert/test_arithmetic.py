"""What numpy computes of a prepare program is what XLA computes, and moves are views."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert import static
from tpu_export.converters.litert.static import weights_of
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower


class Normed(nn.Module):
    """A convolution, of which one filter is laid out anew, and its batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)
        for tensor in (*self.norm.parameters(), self.norm.running_mean):
            nn.init.normal_(torch.as_tensor(tensor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


def lowered(model: nn.Module, x: torch.Tensor) -> LoweredProgram:
    return lower(capture(model.eval(), (x,)), target="litert").program


def test_values_are_those_of_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lowered(Normed(), torch.randn(1, 4, 8, 8))
    with monkeypatch.context() as patch:
        patch.setattr(static, "_run", None)
        found = weights_of(program)
    monkeypatch.setattr(static, "computed", lambda *_: None)
    expected = weights_of(program)
    assert [k for k in found if k.startswith("prepared/")]
    for key, array in expected.items():
        assert found[key].dtype == array.dtype
        np.testing.assert_allclose(found[key], array, rtol=1e-6, atol=1e-7)


def test_a_filter_laid_out_anew_is_no_copy() -> None:
    model = Normed()
    found = weights_of(lowered(model, torch.randn(1, 4, 8, 8)))
    filters = [a for a in found.values() if a.ndim == 4]
    assert [a.shape for a in filters] == [(8, 3, 3, 4)]
    assert np.shares_memory(filters[0], as_numpy(model.conv.weight))


def test_other_ops_are_left_to_xla() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.tensor([-7, 9]))
            self.register_buffer("part", torch.rand(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.whole // 2 + self.part.exp()

    found = weights_of(lowered(Other(), torch.ones(2)))
    assert any(k.startswith("prepared/") for k in found)
