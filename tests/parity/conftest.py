"""A small transformer with a bad layer in it, as a float .tflite and as a quantized one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ai_edge_quantizer import quantizer, recipe
from torch import nn
from torch.nn import functional

from tpu_export.parity.litert import to_litert

Samples = Sequence[Mapping[str, Any]]


class Attention(nn.Module):
    def __init__(self, size: int, mask: float) -> None:
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size)
        triangle = torch.triu(torch.full((8, 8), mask), 1)
        self.register_buffer("mask", triangle)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(q @ k.transpose(-1, -2) * 0.2 + self.mask, -1) @ v


class Block(nn.Module):
    def __init__(self, size: int, mask: float) -> None:
        super().__init__()
        self.attention = Attention(size, mask)
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(x)
        return x + self.down(functional.relu(self.up(x)))


class Transformer(nn.Module):
    """The attention of block 1 has a mask of -1e9, that of block 0 one of -10."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(32, -10.0), Block(32, -1e9)])
        self.head = nn.Linear(32, 20)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@dataclass(frozen=True)
class Files:
    """The transformer, its two .tflite files and some inputs."""

    model: nn.Module
    plain: Path
    integer: Path
    samples: Samples


def quantize(plain: Path, samples: Samples, output: Path, left: str = "") -> Path:
    """Quantize to 8 bits, but for what has the scope `left`."""
    with warnings.catch_warnings():  # of the interpreter that calibration runs
        warnings.simplefilter("ignore", UserWarning)
        job = quantizer.Quantizer(str(plain))
        job.load_quantization_recipe(recipe.static_wi8_ai8())
        if left:
            job.update_quantization_recipe(
                left, recipe.TFLOperationName.ALL_SUPPORTED, algorithm_key="no_quantize"
            )
        calibrated = job.calibrate({"forward": list(samples)})
        job.quantize(calibrated).export_model(str(output), overwrite=True)
    return output


@pytest.fixture(scope="session")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Convert and quantize the transformer."""
    folder = tmp_path_factory.mktemp("quantized")
    torch.manual_seed(0)
    model = Transformer().eval()
    edge = to_litert(model, (torch.randn(2, 8, 32),))
    draw = np.random.default_rng(0)
    samples = [{"x": draw.standard_normal((2, 8, 32), np.float32)} for _ in range(3)]
    plain = edge.save(folder / "float.tflite")
    integer = quantize(plain, samples, folder / "int8.tflite")
    return Files(model, plain, integer, samples)
