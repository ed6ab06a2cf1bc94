"""Inputs and outputs with channels last: proved, quantized, refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.exporter.capture import capture
from tpu_export.parity.export import run
from tpu_export.parity.io_layout import IoLayoutError, laid_out_job
from tpu_export.parity.job import Job
from tpu_export.parity.litert_options import IoLayout, LiteRtOptions
from tpu_export.parity.relaid import as_the_file


class Counting(nn.Module):
    """Two images, one of them written to, state, and results of two ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, image: torch.Tensor, scale: torch.Tensor) -> dict[str, object]:
        self.calls += 1
        image.mul_(scale)
        y = torch.relu(self.conv(image)).add(image.view(1, -1).sum())
        return {"map": y, "mean": y.mean((2, 3))}


def job(path: Path, layout: IoLayout) -> Job:
    torch.manual_seed(0)
    example = (torch.randn(1, 3, 8, 6), torch.rand(1, 3, 1, 1))
    captured = capture(Counting().eval(), example)
    options = LiteRtOptions(io_layout=layout)
    return Job({"forward": captured}, path, target="litert", litert=options)


def test_the_file_takes_and_gives_channels_last(tmp_path: Path) -> None:
    made = laid_out_job(job(tmp_path / "m.tflite", {"*": "nhwc", "scale": "nchw"}))
    shapes = {
        s.name: s.shape
        for c in made.signatures.values()
        for s in (*c.signature.inputs, *c.signature.outputs)
    }
    assert shapes == {
        "image": (1, 8, 6, 3),
        "scale": (1, 3, 1, 1),
        "map": (1, 8, 6, 4),
        "mean": (1, 4),
    }
    result = run(made)
    assert result.parity is not None
    assert result.parity.passed
    assert "channels last in forward: image, map" in result.notes


def test_calibration_stays_as_torch_has_it(tmp_path: Path) -> None:
    made = laid_out_job(job(tmp_path / "m.tflite", {"image": "nhwc"}))
    array = np.arange(24.0).reshape(1, 3, 4, 2)
    found = as_the_file(made.signatures["forward"], {"image": array, "scale": array})
    np.testing.assert_array_equal(found["image"], array.transpose(0, 2, 3, 1))
    assert found["scale"] is array


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("nwhc", "no layout 'nwhc'"),
        ({"imge": "nhwc"}, "no input or output 'imge'"),
        ({"mean": "nhwc"}, "'mean' has 2 dimensions, not 4"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, layout: IoLayout, words: str
) -> None:
    with pytest.raises(IoLayoutError, match=words) as caught:
        laid_out_job(job(tmp_path / "m.tflite", layout))
    assert caught.value.code == "TPX-0630"
