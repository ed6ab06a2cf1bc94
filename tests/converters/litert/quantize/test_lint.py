"""What a recipe would spoil gets another number format, and it is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tpu_export as tx
from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.quantize import Quantized, quantize, read_recipe
from tpu_export.parity.litert_options import LiteRtOptions
from tpu_export.parity.snr import snr

Data = Mapping[str, Any]


class Model:
    """A model with its float file and calibration data."""

    def __init__(self, module: nn.Module, *shape: int) -> None:
        torch.manual_seed(0)
        self.module = module.eval()
        draw = np.random.default_rng(0)
        self.calls = [draw.standard_normal(shape, np.float32) for _ in range(4)]
        self.plain: LiteRtModel = tx.to_litert(module, (torch.tensor(self.calls[0]),))

    @property
    def data(self) -> Data:
        """Calls of the signature."""
        (name,) = (s.name for s in self.plain.signatures["forward"].inputs)
        return {"forward": [{name: x} for x in self.calls]}

    def quantized(self, recipe: Any, **options: Any) -> Quantized:
        return quantize(self.plain, read_recipe(recipe), self.data, **options)

    def decibels(self, done: Quantized) -> float:
        """Return those of the median row: large rows hide all others."""
        with torch.no_grad():
            want = self.module(torch.tensor(self.calls[0])).numpy()
        (feed, *_) = self.data["forward"]
        (got,) = done.model.run(**feed).values()
        pairs = zip(*(x.reshape(-1, x.shape[-1]) for x in (got, want)), strict=True)
        return float(np.median([snr(a, e) for a, e in pairs]))


class Outliers(nn.Module):
    """A feed-forward layer, one channel of which is 300 times as large as the others."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        with torch.no_grad():
            self.up.weight[5] *= 300
            self.down.weight[:, 5] /= 300

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.relu(self.up(x)))
        return y


class Uneven(nn.Module):
    """Tokens of very different sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.logspace(-2, 1, 6)[:, None]


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        Uneven(),
        *(
            nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
            for _ in range(2)
        ),
    )


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


@pytest.fixture(scope="module")
def outliers() -> Model:
    torch.manual_seed(0)
    return Model(Outliers(), 8, 32)


@pytest.mark.parametrize(
    ("build", "kinds", "gain"),
    [
        (Outliers, {"outliers"}, 10),
        (encoder, {"layer norm", "outliers", "softmax"}, 3),
    ],
)
def test_what_is_found_gains_decibels(
    build: Callable[[], nn.Module], kinds: set[str], gain: float
) -> None:
    model = Model(build(), 8, 32) if build is Outliers else Model(build(), 2, 6, 32)
    done, given = (model.quantized("static-int8", lint=x) for x in ("auto", "masks"))
    assert kinds <= {finding.kind for finding in done.findings}
    assert not given.findings
    assert model.decibels(done) > model.decibels(given) + gain
    assert done.coverage["forward"].quantized_ops


def test_large_channels_stay_floats(outliers: Model) -> None:
    """A scale of each call would be that of the same channel."""
    done = outliers.quantized("static-int8")
    found = {f.module: f for f in done.findings}
    assert {m: f.recipe for m, f in found.items()} == {
        "down": "weight-int8",
        "up": "dynamic-int8",
    }
    assert found["down"].snr is not None
    assert found["down"].snr < 26
    assert any("FULLY_CONNECTED of down as weight-int8" in s for s in done.changed())
    products = {op.op: op.formats for op in done.coverage["forward"].ops}
    assert products["FULLY_CONNECTED"] == {"float32 x int8": 2}


def test_large_rows_are_scaled_at_each_call() -> None:
    model = Model(nn.Sequential(Uneven(), nn.Linear(32, 32)), 2, 6, 32)
    done = model.quantized("static-int8")
    recipes = {f.op: f.recipe for f in done.findings}
    assert recipes["FULLY_CONNECTED"] == "dynamic-int8"
    assert model.decibels(done) > 35


def test_an_even_model_is_left_alone() -> None:
    model = Model(perceptron(), 8, 16)
    done, given = (model.quantized("static-int8", lint=x) for x in ("auto", "off"))
    assert not done.findings
    assert not done.changed()
    assert done.model.path.read_bytes() == given.model.path.read_bytes()


def test_what_the_user_says_of_a_module_counts(outliers: Model, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        "\n".join(
            f'[[rule]]\nmodule = "{module}"\nrecipe = "static-int8"'
            for module in ("*", "down", "up")
        )
    )
    assert not outliers.quantized(path).findings
    assert not outliers.quantized("static-int8", lint="off").findings


def test_a_rebuild_is_the_same_file(outliers: Model) -> None:
    one, two = (outliers.quantized("static-int8") for _ in "12")
    assert one.model.path.read_bytes() == two.model.path.read_bytes()
    assert one.recipe.digest == two.recipe.digest


def test_norms_softmax_and_sums_are_floats_at_any_border() -> None:
    model = Model(encoder(), 2, 6, 32)
    for border in ("float32", "int8"):
        done = model.quantized("static-int8", border=border)
        kinds = {op.op: op.formats for op in done.coverage["forward"].ops}
        assert not any(kinds[op] for op in ("SOFTMAX", "RSQRT", "MEAN"))
        assert kinds["FULLY_CONNECTED"]
        (spec,) = done.model.signatures["forward"].inputs
        assert spec.dtype == border


def test_an_export_says_it(tmp_path: Path) -> None:
    calls = Model(Outliers(), 8, 32)
    options = LiteRtOptions("static-int8", calls.data["forward"])
    done = tx.export(
        calls.module,
        (torch.tensor(calls.calls[0]),),
        target="litert",
        litert=options,
        output=tmp_path / "m.tflite",
    )
    assert done.quantization is not None
    assert {f["kind"] for f in done.quantization["lint"]} == {"outliers"}
    assert any(s.startswith("lint, outliers") for s in done.quantization["text"])
