"""Each TRANSPOSE of a file, with what it moves and the op of the model behind it."""

from __future__ import annotations

import torch
from torch import nn

from tpu_export.converters.litert import convert
from tpu_export.converters.litert.transposes import table, total
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower


class Permuted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(2, 0, 1).softmax(-1)


def test_a_transpose_is_priced_and_named() -> None:
    program = lower(capture(Permuted(), (torch.randn(2, 3, 4),)), target="litert")
    report = convert({"forward": program.program}).report
    (found,) = report.transposes["forward"]
    assert (found.shape, found.perm, found.size) == ((2, 3, 4), (2, 0, 1), 96)
    assert found.place.op == "aten.permute.default"
    assert found.place.line.startswith("test_transposes.py:")
    assert total(report.transposes) == "1 transpose moves 0.00 MB per call of forward"
    _, row = table(report.transposes)
    assert row[:4] == ["forward", "0.1 kB", "2,3,4", "2,0,1"]


def test_none_is_said() -> None:
    assert total({"forward": ()}) == "no transposes"
