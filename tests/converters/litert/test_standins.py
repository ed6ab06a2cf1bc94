"""A file made with stand-ins has the ops and constants of one made with the weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert import job, standins
from tpu_export.converters.litert.contents import read_contents
from tpu_export.converters.litert.static import StaticProgram, static_program
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower


class Scaled(nn.Module):
    """Products scaled before, after, and by a number; a weight used in two layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64, bias=False)
        self.scale = nn.Parameter(torch.rand(64) + 0.5)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.first(x)) + self.second(x) * 0.125 * self.scale
        return y @ self.second.weight


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(70, 64)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.table(index), self.table.weight)


def _normed(*layers: nn.Module) -> nn.Module:
    pairs = [(m, nn.BatchNorm2d(32), nn.ReLU()) for m in layers]
    return nn.Sequential(*(m for pair in pairs for m in pair))


IMAGE = torch.randn(1, 32, 8, 8)
CASES: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "products": (Scaled(), torch.randn(4, 64)),
    "tied": (Tied(), torch.arange(8)[None]),
    "convolutions": (_normed(nn.Conv2d(32, 32, 3), nn.Conv2d(32, 32, 5)), IMAGE),
    "depthwise": (_normed(nn.Conv2d(32, 32, 7, groups=32)), IMAGE),
    "groups": (_normed(nn.Conv2d(32, 32, 3, groups=2, bias=False)), IMAGE),
    "transposed": (_normed(nn.ConvTranspose2d(32, 32, 3, 2, 1, 1)), IMAGE),
    "one dimension": (
        nn.Sequential(nn.Conv1d(64, 64, 3), nn.BatchNorm1d(64)),
        torch.randn(1, 64, 9),
    ),
    "three dimensions": (nn.Conv3d(8, 8, 3, stride=2), torch.randn(1, 8, 6, 6, 6)),
    "recurrent": (nn.LSTM(48, 48), torch.randn(3, 1, 48)),
}


def programs(model: nn.Module, x: torch.Tensor) -> dict[str, StaticProgram]:
    lowered = lower(capture(model.eval(), (x,)), target="litert").program
    return {"forward": static_program(lowered, {})}


def held(path: Path) -> tuple[Mapping[str, int], Counter[tuple[Any, ...]]]:
    found = read_contents(path, hashes=True)
    ops = found.signatures["forward"].ops
    return ops, Counter((c.dtype, c.shape, c.sha256) for c in found.constants)


def whole(
    made: Mapping[str, StaticProgram], place: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    place.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(job, "with_stand_ins", lambda _: {})
        return job.converted(made, place)


@pytest.mark.parametrize("name", CASES)
def test_ops_and_constants_are_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    made = programs(*CASES[name])
    weights = [a for p in made.values() for a in p.weights.values()]
    assert any(map(standins.is_large, weights))
    path = job.converted(made, tmp_path)
    assert held(path) == held(whole(made, tmp_path / "whole", monkeypatch))


def test_only_small_weights_are_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = programs(*CASES["convolutions"])
    sizes: list[int] = []

    def write(folder: Path, arrays: Mapping[str, Any]) -> None:
        sizes.extend(a.nbytes for a in arrays.values())
        real(folder, arrays)

    real = job.write_arrays
    monkeypatch.setattr(job, "write_arrays", write)
    job.converted(made, tmp_path)
    assert 0 < max(sizes) < standins.LARGE
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == ["integers.json", "model.tflite"]


def test_a_value_that_an_op_needs_is_handed_over_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = programs(*CASES["depthwise"])
    monkeypatch.setattr(standins, "_is_depthwise", lambda _: False)
    with caplog.at_level("INFO"):
        path = job.converted(made, tmp_path)
    assert "1 of 4 weights go through the converter: tfl.depthwise_conv_2d" in (
        caplog.text
    )
    assert held(path) == held(whole(made, tmp_path / "whole", monkeypatch))


def test_a_worker_that_dies_gets_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, statuses = programs(*CASES["products"]), [-11]

    def run(module: str, *argv: str) -> tuple[int, str]:
        return (statuses.pop(), "") if statuses else real(module, *argv)

    real = job.run_module
    monkeypatch.setattr(job, "run_module", run)
    path = job.converted(made, tmp_path)
    assert held(path) == held(whole(made, tmp_path / "whole", monkeypatch))


def test_every_marker_must_be_in_the_file(tmp_path: Path) -> None:
    path = job.converted(programs(*CASES["tied"]), tmp_path)
    with pytest.raises(AssertionError, match=r"markers \[\] are in the file, of 1"):
        standins.fill(path, 1, lambda _: np.zeros(1))
