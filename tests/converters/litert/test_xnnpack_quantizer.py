"""Models quantized by torchao's PT2E flow, as their users have them."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tpu_export as tx


class Inverted(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        wide = 4 * width
        self.layers = nn.Sequential(
            nn.Conv2d(width, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, width, 1),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.layers(x)
        return y


def image_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        Inverted(),
        Inverted(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)


def quantized(build: Callable[[], nn.Module], x: Tensor, dynamic: bool) -> Any:
    """Return the ExportedProgram of a model that torchao quantized, after calibration."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack

        config = xnnpack.get_symmetric_quantization_config(
            is_per_channel=True, is_dynamic=dynamic
        )
        quantizer = xnnpack.XNNPACKQuantizer().set_global(config)
        torch.manual_seed(0)
        graph = torch.export.export(build().eval(), (x,)).module()
        prepared = prepare_pt2e(graph, quantizer)
        for _ in range(8):
            prepared(torch.randn_like(x))
        return torch.export.export(convert_pt2e(prepared), (x,))


IMAGE, ROWS, TOKENS = (2, 3, 32, 32), (4, 16), (2, 6, 32)
CASES = {
    "image": (
        image_net,
        IMAGE,
        False,
        {
            "CONV_2D": {"int8 x int8": 5},
            "DEPTHWISE_CONV_2D": {"int8 x int8": 2},
            "FULLY_CONNECTED": {"int8 x int8": 1},
        },
    ),
    "image dynamic": (
        image_net,
        IMAGE,
        True,
        {
            "CONV_2D": {"float32": 5},
            "DEPTHWISE_CONV_2D": {"float32": 2},
            "FULLY_CONNECTED": {"float32 x int8": 1},
        },
    ),
    "rows": (perceptron, ROWS, False, {"FULLY_CONNECTED": {"int8 x int8": 2}}),
    "rows dynamic": (
        perceptron,
        ROWS,
        True,
        {"FULLY_CONNECTED": {"float32 x int8": 2}},
    ),
    "tokens": (
        encoder,
        TOKENS,
        False,
        {"FULLY_CONNECTED": {"int8 x int8": 4}, "BATCH_MATMUL": {"float32": 2}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_product_that_torchao_quantized_is_one_of_integers(
    name: str, tmp_path: Path
) -> None:
    build, shape, dynamic, formats = CASES[name]
    program = quantized(build, torch.randn(shape), dynamic)
    edge = tx.to_litert(program)
    assert edge.report.integers.ops == {"forward": formats}
    assert edge.report.integers.floats == ()
    done = tx.export(program, target="litert", output=tmp_path / "m.tflite")
    assert done.parity is not None
    assert done.parity.passed


def test_the_command_takes_a_saved_program(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    torch.export.save(quantized(perceptron, torch.randn(ROWS), dynamic=False), path)
    argv = ["--target", "litert", "-o", str(tmp_path / "m.tflite")]
    done = subprocess.run(
        [sys.executable, "-m", "tpu_export.cli.main", str(path), *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 FULLY_CONNECTED int8 x int8" in done.stdout + done.stderr
