"""Images as bytes: the arithmetic is in the file, proved, and refused where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tpu_export as tx
from tpu_export.exporter.capture import capture
from tpu_export.parity.job import Job
from tpu_export.parity.litert_options import LiteRtOptions
from tpu_export.parity.normalization import (
    PRESETS,
    Normalization,
    PreprocessError,
    read_normalization,
)
from tpu_export.parity.preprocessed import preprocessed_job

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Net(nn.Module):
    """An image, a number, and state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, image: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.relu(self.conv(image)).mean((2, 3)) * times


def exported(path: Path, **options: Any) -> Any:
    torch.manual_seed(0)
    net = Net().eval()
    given = LiteRtOptions(**options)
    inputs = (torch.randn(1, 3, 8, 6), torch.tensor(2.0))
    return net, tx.export(net, inputs, target="litert", output=path, litert=given)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_file_takes_bytes(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    options = {"preprocess": {"image": "imagenet"}, "io_layout": {"image": layout}}
    net, result = exported(path, **options)
    assert result.parity is not None
    assert result.parity.passed
    assert any(n.startswith("image takes uint8") for n in result.notes)
    image = np.random.default_rng(1).integers(0, 256, (1, 3, 8, 6), np.uint8)
    given = image if layout == "nchw" else np.moveaxis(image, 1, -1)
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(path)).get_signature_runner("forward")
    got = runner(
        image=np.ascontiguousarray(given),
        times=np.float32(3),
        **{"state.calls": np.zeros(1, np.float32)},
    )["output_0"]
    mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in (MEAN, STD))
    normal = (torch.from_numpy(image) / 255 - mean) / std
    expected = net(normal, torch.tensor(3.0)).detach()
    torch.testing.assert_close(torch.from_numpy(got), expected)


def job(path: Path, model: Any, inputs: tuple[torch.Tensor, ...], **asked: str) -> Job:
    options = LiteRtOptions(preprocess=asked)
    signatures = {"forward": capture(model, inputs)}
    return Job(signatures, path, target="litert", litert=options)


def test_quantized_with_bytes_as_data(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 1, 3, 8, 6), np.uint8)
    calls = [{"image": image, "times": np.float32(2)} for image in images]
    _, result = exported(
        tmp_path / "m.tflite",
        preprocess={"image": "unit"},
        recipe="static-int8",
        calibrate=calls,
    )
    assert result.quantization["verdict"]["agreements"]


def test_a_single_image_and_one_mean_for_all(tmp_path: Path) -> None:
    made = preprocessed_job(
        job(tmp_path / "m", lambda x: x * 2, (torch.rand(3, 4, 4),), x="0.5/0.25")
    )
    captured = made.signatures["forward"]
    assert captured.signature.inputs[0].dtype == "uint8"
    (image,) = captured.example[0]
    assert image.dtype == torch.uint8
    want = (image.float() / 255 - 0.5) / 0.25 * 2
    torch.testing.assert_close(captured.eager(image), want)
    torch.testing.assert_close(captured.program.module()(image), want)


@pytest.mark.parametrize("norm", PRESETS.values(), ids=PRESETS)
def test_the_stated_error_is_the_largest(norm: Normalization) -> None:
    x = np.arange(256, dtype=np.float32)
    slope, offset = norm.factors()
    far = [
        np.abs(a * x + b - (x / np.float32(255) - np.float32(m)) / np.float32(s)).max()
        for a, b, m, s in zip(slope, offset, norm.mean, norm.std, strict=True)
    ]
    assert norm.error() == pytest.approx(max(far))
    assert norm.error() < 1e-6


@pytest.mark.parametrize(
    "text",
    ["", "imagnet", "0.5", "0.5/0", "0.5/-1", "0.1,0.2/0.1,0.2,0.3", "nan/1", "a/b"],
)
def test_what_is_no_normalization(text: str) -> None:
    with pytest.raises(PreprocessError, match="preprocessing"):
        read_normalization(text)


def test_what_forward_writes_stays_in_it(tmp_path: Path) -> None:
    example = (torch.rand(1, 3, 4, 4),)
    made = preprocessed_job(job(tmp_path / "m", lambda x: x.mul_(2), example, x="unit"))
    captured = made.signatures["forward"]
    (image,) = captured.example[0]
    before = image.clone()
    for function in (captured.eager, captured.program.module()):
        torch.testing.assert_close(function(image), before / 255 * 2)
        assert torch.equal(image, before)


@pytest.mark.parametrize(
    ("model", "x", "asked", "message"),
    [
        (nn.ReLU(), torch.rand(1, 3, 4, 4), {"imag": "unit"}, "no input 'imag'"),
        (nn.Embedding(4, 2), torch.arange(3), {"input": "unit"}, "is int64"),
        (nn.ReLU(), torch.rand(1, 1, 4, 4), {"input": "imagenet"}, "has 1 channels"),
        (nn.ReLU(), torch.rand(1, 3), {"input": "imagenet"}, "has 2 dimensions"),
    ],
)
def test_refused(
    model: Any, x: torch.Tensor, asked: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(PreprocessError, match=message):
        preprocessed_job(job(tmp_path / "m", model, (x,), **asked))
