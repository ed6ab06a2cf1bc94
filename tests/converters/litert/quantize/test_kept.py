"""Weights and biases near zero are what they were, or the file is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tpu_export as tx
from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.quantize import Quantized, quantize, read_recipe
from tpu_export.converters.litert.quantize.errors import WeightsLostError
from tpu_export.parity.snr import snr

STATIC = ["static-int8", "static-int16"]
BLOCKS = ["dynamic-int4-block32", "weight-int4-block32"]


def data(model: LiteRtModel, *shape: int) -> Mapping[str, Any]:
    draw = np.random.default_rng(0)
    (name,) = (s.name for s in model.signatures["forward"].inputs)
    return {
        "forward": [{name: draw.standard_normal(shape, np.float32)} for _ in range(4)]
    }


def decibels(module: nn.Module, done: Quantized, feed: Mapping[str, Any]) -> list[Any]:
    """Return those of each channel, the second axis."""
    with torch.no_grad():
        want = module(*(torch.tensor(x) for x in feed.values())).numpy()
    (got,) = done.model.run(**feed).values()
    return [snr(got[:, i], want[:, i]) for i in range(want.shape[1])]


def linear(change: Callable[[nn.Linear], object]) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 16)).eval()
    with torch.no_grad():
        change(module[0])
    return module


def dead(layer: nn.Linear | nn.Conv2d) -> None:
    layer.weight[2] = 0
    layer.bias[2] = 5.0
    layer.weight[3] *= 1e-9
    layer.bias[3] = -7.0


def tiny(layer: nn.Linear) -> None:
    layer.weight *= 1e-7
    layer.bias *= 1e-7


def half(layer: nn.Linear) -> None:
    layer.weight[:, 32:] = 0


def quantized(
    module: nn.Module, recipe: str | Path, *shape: int, **options: Any
) -> Any:
    plain = tx.to_litert(module, (torch.zeros(shape),))
    calls = data(plain, *shape)
    done = quantize(plain, read_recipe(recipe), calls, **options)
    return done, decibels(module, done, calls["forward"][0])


@pytest.mark.parametrize("lint", ["auto", "off"])
@pytest.mark.parametrize("recipe", [*STATIC, *BLOCKS, "dynamic-int8", "fp16"])
def test_a_dead_channel_keeps_its_bias(recipe: str, lint: str) -> None:
    done, found = quantized(linear(dead), recipe, 8, 64, lint=lint)
    assert min(found[2:4]) > 40
    assert min(found) > 10
    said = any(
        "near-zero weights, whose bias did not fit, in 2" in s for s in done.changed()
    )
    assert said == (recipe in STATIC)


@pytest.mark.parametrize("groups", [1, 8])
def test_so_does_one_of_a_convolution(groups: int) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(8, 8, 3, groups=groups), nn.ReLU()).eval()
    with torch.no_grad():
        dead(module[0])
    done, found = quantized(module, "static-int8", 1, 8, 9, 9)
    assert found[2] > 40
    assert min(x for i, x in enumerate(found) if i != 3) > 25
    histogram = done.model.report.ops["forward"]
    assert histogram["DEPTHWISE_CONV_2D" if groups > 1 else "CONV_2D"] == 1


class Tied(nn.Module):
    """One weight in two layers, with a bias and inputs of its own in each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(16, 16), nn.Linear(16, 16)
        with torch.no_grad():
            dead(self.one)
            self.two.bias[3] = 9.0
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x), self.two(torch.relu(x))], 1)


def test_a_shared_weight_has_room_for_each_bias() -> None:
    _, found = quantized(Tied().eval(), "static-int8", 8, 16)
    assert min(found[i] for i in (2, 3, 19)) > 35
    assert min(found[i] for i in range(32) if i != 18) > 15


class Loop(nn.Module):
    """Two layers of one line: the first has a dead channel, the second has none."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [linear(dead)[0], linear(lambda _: None)[0]]
        self.weights = nn.ParameterList([layer.weight for layer in self.layers])
        self.biases = nn.ParameterList([layer.bias for layer in self.layers])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = zip(self.weights, self.biases, strict=True)
        return torch.cat([F.linear(x, w, b) for w, b in pairs], 1)


def test_layers_of_one_line_are_not_one() -> None:
    done, found = quantized(Loop().eval(), "static-int8", 8, 64)
    assert min(found[2:4]) > 40
    assert any("did not fit, in 2 channels" in s for s in done.changed())


class Mean(nn.Module):
    """A constant that is no weight, far below the numbers that it is compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear(lambda _: None)[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.layer(x))
        return y / torch.clamp(y.sum(-1, keepdim=True), min=1e-9)


@pytest.mark.parametrize("lint", ["auto", "masks"])
def test_a_constant_on_the_grid_of_an_activation_is_no_error(lint: str) -> None:
    done, found = quantized(Mean().eval(), "static-int8", 8, 64, lint=lint)
    kinds = {finding.kind for finding in done.findings}
    assert kinds == ({"constants"} if lint == "auto" else set())
    assert float(np.median(found)) > 35


@pytest.mark.parametrize("recipe", BLOCKS)
def test_blocks_of_zeros_load(recipe: str) -> None:
    done, found = quantized(linear(half), recipe, 8, 64, lint="off")
    assert min(found) > 15
    assert not done.changed()


WIDER = {
    "dynamic-int4-block32": "dynamic-int8",
    "weight-int4-block32": "weight-int8",
    "fp16": "float",
}


@pytest.mark.parametrize("recipe", WIDER)
def test_weights_that_a_format_cannot_hold_get_another(recipe: str) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.usual = linear(tiny), linear(lambda _: None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.low(x), self.usual(x)], 1)

    done, found = quantized(Two(), recipe, 8, 64)
    assert min(found[:16]) > 30
    (finding,) = done.findings
    assert (finding.module, finding.recipe) == ("low.0", WIDER[recipe])
    (line,) = done.changed()
    assert "16 of 16 rows of weights would be lost" in line


@pytest.mark.parametrize("recipe", WIDER)
def test_or_the_file_is_refused(recipe: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'[[rule]]\nrecipe = "{recipe}"\nmodule = "0"\n')
    for given, options in ((recipe, {"lint": "off"}), (path, {})):
        with pytest.raises(WeightsLostError, match="rows of weights"):
            quantized(linear(tiny), given, 8, 64, **options)


def test_outputs_are_floats_where_most_ops_are(tmp_path: Path) -> None:
    """The rule that keeps outputs is not that of the ops that make them."""
    module = nn.Sequential(nn.ReLU(), nn.Tanh(), nn.Sigmoid(), nn.Linear(16, 16))
    path = tmp_path / "own.toml"
    path.write_text('[[rule]]\nrecipe = "static-int8"\nmodule = "3"\n')
    done, found = quantized(module.eval(), path, 8, 16)
    (result,) = done.model.signatures["forward"].outputs
    assert result.dtype == "float32"
    assert min(found) > 20


@pytest.mark.parametrize("recipe", STATIC)
def test_a_table_of_embeddings_is_int8_too(recipe: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(1000, 16), nn.Linear(16, 4)).eval()
    x = torch.randint(0, 1000, (2, 8))
    plain = tx.to_litert(module, (x,))
    (name,) = (s.name for s in plain.signatures["forward"].inputs)
    calls = [{name: torch.randint(0, 1000, (2, 8)).numpy()} for _ in range(8)]
    done = quantize(plain, read_recipe(recipe), {"forward": calls})
    assert done.model.report.size < plain.report.size - 2 * 16 * 1000
    assert (
        snr(done.model.run(**{name: x.numpy()})["output_0"], module(x).detach().numpy())
        > 25
    )
