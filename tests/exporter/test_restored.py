"""A model that parity has called is as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import tpu_export as tx
from tpu_export.exporter.restored import restored


class Expanded(torch.nn.Module):
    """Adds a buffer whose rows are one row, and counts its calls."""

    rows: torch.Tensor
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.arange(3.0).expand(4, 3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return self.rows + x


def test_an_expanded_buffer(tmp_path: Path) -> None:
    path = tmp_path / "m.tpuexe"
    tx.export(Expanded().eval(), (torch.randn(3),), topologies=(), output=path)
    with tx.load(path, device="cpu") as program:
        y = program(np.ones(3, np.float32))
    np.testing.assert_array_equal(y, [[1, 2, 3]] * 4)


def test_values_come_back() -> None:
    model = Expanded()
    with restored(model, dict(model.named_buffers())):
        model(torch.zeros(3))
        assert model.calls == 1
    assert model.calls == 0
    assert model.rows.stride() == (0, 1)
