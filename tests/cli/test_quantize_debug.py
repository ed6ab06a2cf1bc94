"""tpu-export quantize-debug: the table, the mixed recipe, and what it refuses."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tpu_export.converters.litert.quantize import lint
from tpu_export.converters.litert.quantize.noise import float_values

Run = Callable[..., tuple[int, str, str]]
MODEL = """
import torch

class Outlier(torch.nn.Module):
    # One value of 300 beside others of 1: in 8 bits all the others are 0.

    def __init__(self):
        super().__init__()
        self.scores = torch.nn.Linear(8, 8)
        self.scores.bias.data[0] = 300

    def forward(self, x):
        return torch.tanh(self.scores(x))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 8)
        self.bad = Outlier()
        self.down = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.down(self.bad(torch.tanh(self.up(x))))

def get_model():
    torch.manual_seed(0)
    return Model().eval()

def get_inputs():
    torch.manual_seed(0)
    return (torch.randn(2, 8, 8),)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_the_bad_layer_stays_in_float(
    tpx: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr(
        lint, "float_values", lambda *given: looked.append(0) or float_values(*given)
    )
    draw = np.random.default_rng(0)
    (tmp_path / "data").mkdir()
    for i in range(2):
        x = draw.standard_normal((2, 8, 8), np.float32)
        np.savez(tmp_path / "data" / f"{i}.npz", x=x)
    output = tmp_path / "recipe.toml"
    given = ("--calibrate", tmp_path / "data")
    status, out, _ = tpx(
        "quantize-debug", model, *given, "--target-snr", 24, "-o", output, "--json"
    )
    assert status == 0
    report = json.loads(out)
    assert report["data"] == "2 real inputs"
    assert report["layers"][0]["module"] == "bad.scores"
    assert report["found"]["before"]["snr"] < 24 <= report["found"]["after"]["snr"]
    assert report["found"]["after"]["regions"] == ["bad"]
    assert report["found"]["tried"] > 1
    assert len(looked) == 1  # whatever the number of files
    rules = tomllib.loads(output.read_text())["rule"]
    assert rules == [
        {"module": "*", "recipe": "static-int8"},
        {"module": "bad", "recipe": "float"},
        {"module": "bad.*", "recipe": "float"},  # bad.scores
    ]


def test_without_a_target_the_layers_are_told(tpx: Run, model: Path) -> None:
    status, out, _ = tpx("quantize-debug", model, "--recipe", "dynamic-int8")
    assert status == 0
    assert out.startswith(
        "dynamic-int8, layers by what they lose on their own (the exa"
    )
    assert "size: " in out


def test_a_gate_fails(tpx: Run, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "recipe.toml"
    gate = ("--target-snr", 0, "-o", output, "--min-snr", 90)
    status, _, err = tpx("quantize-debug", model, *gate)
    assert status == 1
    assert "'output_0' of 'forward', quantized against eager" in err
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "r.toml"], "--output needs --target-snr"),
        (["--signature", "other"], "no signature 'other'"),
    ],
)
def test_usage(tpx: Run, model: Path, options: list[str], words: str) -> None:
    status, _, err = tpx("quantize-debug", model, *options)
    assert status == 2
    assert words in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--recipe", "int3"], "TPX-0610"),
        (["--calibrate", "missing.npz"], "TPX-0611"),
    ],
)
def test_what_an_export_refuses_too(
    tpx: Run, model: Path, options: list[str], words: str
) -> None:
    status, _, err = tpx("quantize-debug", model, *options)
    assert status == 1
    assert words in err
