"""tpu-export quantize-debug: the table, the mixed recipe, and what it refuses."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Run = Callable[..., tuple[int, str, str]]
MODEL = """
import torch

class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(8, 8)

    def forward(self, x):
        mask = torch.triu(torch.full((8, 8), -1e9), 1)
        return torch.softmax(self.scores(x) * 4 + mask, -1) @ x

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 8)
        self.masked = Masked()
        self.down = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.down(self.masked(torch.tanh(self.up(x))))

def get_model():
    torch.manual_seed(0)
    return Model().eval()

def get_inputs():
    torch.manual_seed(0)
    return (torch.randn(2, 8, 8),)
"""


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    path = tmp_path / "masked.py"
    path.write_text(MODEL)
    return path


def test_the_bad_layer_stays_in_float(tpx: Run, masked: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    files = [tmp_path / f"{i}.npz" for i in range(2)]
    for file in files:
        np.savez(file, x=draw.standard_normal((2, 8, 8), np.float32))
    output = tmp_path / "recipe.toml"
    given = [word for file in files for word in ("--calibrate", file)]
    status, out, _ = tpx(
        "quantize-debug", masked, *given, "--target-snr", 24, "-o", output, "--json"
    )
    assert status == 0
    report = json.loads(out)
    assert report["data"] == "2 real inputs"
    assert report["layers"][0]["module"] == "masked"
    assert report["found"]["before"]["snr"] < 24 <= report["found"]["after"]["snr"]
    assert report["found"]["after"]["regions"] == ["masked"]
    rules = tomllib.loads(output.read_text())["rule"]
    assert rules == [
        {"module": "*", "recipe": "static-int8"},
        {"module": "masked", "recipe": "float"},
        {"module": "masked.*", "recipe": "float"},  # masked.scores
    ]


def test_without_a_target_the_layers_are_told(tpx: Run, masked: Path) -> None:
    status, out, _ = tpx("quantize-debug", masked, "--recipe", "dynamic-int8")
    assert status == 0
    assert out.startswith(
        "dynamic-int8, layers by what they lose on their own (the exa"
    )
    assert "size: " in out


def test_a_gate_fails(tpx: Run, masked: Path, tmp_path: Path) -> None:
    output = tmp_path / "recipe.toml"
    gate = ("--target-snr", 0, "-o", output, "--min-snr", 90)
    status, _, err = tpx("quantize-debug", masked, *gate)
    assert status == 1
    assert "'output_0' of 'forward', quantized against eager" in err
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "r.toml"], "--output needs --target-snr"),
        (["--recipe", "int3"], "'int3' is not one of"),
        (["--signature", "other"], "no signature 'other'"),
        (["--calibrate", "missing.npz"], "cannot read inputs from missing.npz"),
    ],
)
def test_usage(tpx: Run, masked: Path, options: list[str], words: str) -> None:
    status, _, err = tpx("quantize-debug", masked, *options)
    assert status == 2
    assert words in err
