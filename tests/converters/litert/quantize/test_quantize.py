"""Quantized files: right in both engines, as many integers as asked for, the same each time."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.graph import CASTS, Graph, read_graph
from tpu_export.converters.litert.quantize import Quantized, quantize, read_recipe
from tpu_export.converters.litert.quantize.errors import (
    CalibrationError,
    QuantizedNothingError,
    RecipeError,
)
from tpu_export.parity.judging import as_numbers, as_taken
from tpu_export.parity.litert import to_litert
from tpu_export.parity.snr import snr


class Causal(nn.Module):
    """Attention, a convolution and a head: what recipes differ on."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)
        self.mix = nn.Conv1d(32, 32, 3, padding=1)
        self.head = nn.Linear(32, 40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            t.unflatten(-1, (4, 8)).transpose(1, 2)
            for t in self.qkv(x).chunk(3, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).flatten(2)
        x = x + F.relu(self.mix(x.mT)).mT
        return self.head(x)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Causal().eval()


@pytest.fixture(scope="module")
def plain(model: nn.Module) -> LiteRtModel:
    return to_litert(model, (torch.randn(2, 16, 32),))


@pytest.fixture(scope="module")
def data() -> Mapping[str, Any]:
    draw = np.random.default_rng(0)
    return {
        "forward": [
            {"x": draw.standard_normal((2, 16, 32), np.float32)} for _ in range(4)
        ]
    }


def decibels(done: Quantized, model: nn.Module, x: Any) -> list[float]:
    want = model(torch.from_numpy(x)).detach().numpy()
    return [
        snr(done.model.run(engine=engine, x=x)["output_0"], want)
        for engine in ("interpreter", "compiled")
    ]


def simulated(model: nn.Module, bits: int) -> nn.Module:
    """Return the model with weights rounded to symmetric integers of each channel."""
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for weight in (p for p in rounded.parameters() if p.dim() > 1):
            top = weight.abs().flatten(1).amax(1).view(-1, *[1] * (weight.dim() - 1))
            scale = top / (2 ** (bits - 1) - 1)
            weight.copy_((weight / scale).round() * scale)
    return rounded


@pytest.mark.parametrize(("recipe", "bits"), [("weight-int8", 8), ("weight-int4", 4)])
def test_weights_are_those_of_a_simulation(recipe, bits, plain, model, data):
    """The only difference to the rounded float model is the order of its sums."""
    done = quantize(plain, read_recipe(recipe))
    for call in data["forward"][:1]:
        assert min(decibels(done, simulated(model, bits), call["x"])) > 80


# Signal to noise against torch eager, and the formats of FULLY_CONNECTED.
RECIPES = {
    "dynamic-int8": (36, {"float32 x int8"}),
    "weight-int8": (36, {"float32 x int8"}),
    "weight-int4": (14, {"float32 x int4"}),
    "static-int8": (28, {"int8 x int8"}),
    "static-int16": (36, {"int16 x int8"}),
    "fp16": (60, {"float32 x float16"}),
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_met_in_the_file(recipe, plain, model, data):
    least, formats = RECIPES[recipe]
    done = quantize(plain, read_recipe(recipe), data, lint="masks")
    assert min(decibels(done, model, data["forward"][0]["x"])) > least
    found = done.coverage["forward"]
    kinds = {op.op: op for op in found.ops}
    products = kinds["FULLY_CONNECTED"]
    assert set(products.formats) == formats
    assert products.parameters[0] == products.parameters[1]
    assert found.quantized_bytes < 0.6 * found.plain_bytes
    assert done.model.report.size < plain.report.size
    is_static = recipe.startswith("static")
    assert bool(done.clamped) == is_static
    if is_static:
        assert "down to -1e+30" in done.clamped[0]
        assert found.quantized_ops == found.total_ops


class Masked(nn.Module):
    def __init__(self, far: float) -> None:
        super().__init__()
        self.scores = nn.Linear(16, 16)
        self.register_buffer("mask", torch.triu(torch.full((16, 16), far), 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.scores(x) + self.mask, -1) @ x


@pytest.mark.parametrize("far", [-1e9, -1e4, -1e3])
def test_every_usual_mask_is_clamped(far: float):
    torch.manual_seed(0)
    model, x = Masked(far).eval(), torch.randn(1, 16, 16)
    data = {"forward": [{"x": x.numpy()}]}
    done = quantize(to_litert(model, (x,)), read_recipe("static-int8"), data)
    assert done.clamped[0].startswith("120 mask values (down to -1")
    assert min(decibels(done, model, x.numpy())) > 28


def test_a_rebuild_is_the_same_file(plain, data):
    recipe = read_recipe("static-int8")
    one, two = (quantize(plain, recipe, data) for _ in "12")
    assert one.model.path.read_bytes() == two.model.path.read_bytes()


def test_a_module_stays_in_float(plain, model, data, tmp_path: Path):
    path = tmp_path / "mixed.toml"
    path.write_text(
        '[[rule]]\nrecipe = "static-int8"\n[[rule]]\nrecipe = "float"\nmodule = "head"\n'
    )
    done = quantize(plain, read_recipe(path), data)
    products = next(
        o for o in done.coverage["forward"].ops if o.op == "FULLY_CONNECTED"
    )
    assert products.formats == {"int8 x int8": products.count - 1}
    assert products.reason == "1 in float by the recipe"
    whole = quantize(plain, read_recipe("static-int8"), data)
    x = data["forward"][0]["x"]
    assert decibels(done, model, x)[0] > decibels(whole, model, x)[0]


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_integer_inputs_and_outputs(engine, plain, data):
    """uint8 is int8 with a zero point 128 higher, to the last bit."""
    x, found = data["forward"][0]["x"], {}
    for dtype in ("int8", "uint8"):
        recipe = read_recipe("static-int8")
        done = quantize(plain, recipe, data, border=dtype, lint="masks")
        signature = done.model.signatures["forward"]
        (spec,), (result,) = signature.inputs, signature.outputs
        assert (spec.dtype, result.dtype) == (dtype, dtype)
        graph = read_graph(done.model.path, "forward")
        given = as_taken(graph, {"x": x})
        assert given["x"].dtype == dtype
        y = done.model.run(engine=engine, **given)
        assert y["output_0"].dtype == dtype
        found[dtype] = given["x"].astype(int), as_numbers(graph, y)["output_0"]
        assert done.coverage["forward"].quantized_ops == len(computing(graph))
    np.testing.assert_array_equal(found["uint8"][0] - found["int8"][0], 128)
    np.testing.assert_array_equal(found["uint8"][1], found["int8"][1])


def computing(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes if node.name not in CASTS]


@pytest.mark.parametrize("border", ["int8", "uint8"])
@pytest.mark.parametrize("recipe", ["dynamic-int8", "static-int16"])
def test_integers_at_the_border_need_static_int8(recipe, border, plain, data):
    with pytest.raises(RecipeError, match="int"):
        quantize(plain, read_recipe(recipe), data, border=border)


def test_what_has_no_meaning_is_refused(plain, data, tmp_path: Path):
    with pytest.raises(CalibrationError, match="static-int8"):
        quantize(plain, read_recipe("static-int8"))
    with pytest.raises(QuantizedNothingError, match="in float by the recipe"):
        quantize(plain, read_recipe("float"))
    path = tmp_path / "idle.toml"
    path.write_text(
        '[[rule]]\nrecipe = "fp16"\n[[rule]]\nrecipe = "float"\nmodule="hed"\n'
    )
    with pytest.raises(RecipeError, match="'hed'") as info:
        quantize(plain, read_recipe(path), data)
    assert "head" in info.value.hint
