"""Each TRANSPOSE of a file, with what it moves and the op of the model behind it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tpu_export.converters.litert import LiteRtModel, convert
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


class Chain(nn.Module):
    """A block of MobileNet's, a skip, a transposed convolution, and a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.relu6(self.stem(x))
        skip = nn.functional.max_pool2d(y, 3, 1, 1)
        y = nn.functional.hardtanh(self.norm(self.depthwise(y)))
        return self.up(torch.cat([y, skip], 1)).mean((2, 3))


def test_only_the_image_is_moved(
    right_in_both: Callable[..., LiteRtModel],
) -> None:
    torch.manual_seed(0)
    model = right_in_both(Chain().eval(), torch.randn(1, 3, 16, 12))
    (moved,) = model.report.transposes["forward"]
    assert moved.perm == (0, 2, 3, 1)
    assert moved.shape[1] == 3


# What is between two convolutions, its layers, the channels of the second, and the TRANSPOSEs
# that are left: those that the op itself is.
BETWEEN: dict[str, tuple[Callable[..., torch.Tensor], list[nn.Module], int, int]] = {
    "group norm": (lambda y, f: f(y), [nn.GroupNorm(2, 8)], 8, 0),
    "bilinear": (lambda y: F.interpolate(y, size=(11, 20), mode="bilinear"), [], 8, 0),
    "group norm of all": (lambda y, f: f(y), [nn.GroupNorm(1, 8, affine=False)], 8, 0),
}


class Between(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.function, layers, channels, _ = BETWEEN[name]
        self.layers = nn.ModuleList(layers)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(channels, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        return self.second(self.function(y, *self.layers)).mean((2, 3))


@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_moved_between_convolutions(
    right_in_both: Callable[..., LiteRtModel], name: str
) -> None:
    torch.manual_seed(0)
    model = right_in_both(Between(name).eval(), torch.randn(2, 3, 8, 12))
    image, own = (2, 3, 8, 12), model.report.transposes["forward"]
    assert [t for t in own if t.shape == image]
    assert len([t for t in own if t.shape != image]) == BETWEEN[name][-1], own
