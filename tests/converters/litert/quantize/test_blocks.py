"""Weights in blocks of 32 with a scale each: computed in float, or in integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.fold import scales_of_blocks
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.litert.quantize import Quantized, quantize, read_recipe
from tpu_export.parity.layers import layers
from tpu_export.parity.litert import to_litert
from tpu_export.parity.snr import snr

X = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32)).eval()


@pytest.fixture(scope="module")
def plain(model: nn.Module) -> LiteRtModel:
    return to_litert(model, (X,))


def from_file(done: Quantized) -> list[Any]:
    """Return the weights that a file with blocks in integers stands for, from its bytes."""
    graph = read_graph(done.model.path, "forward")
    found = []
    for node in graph.nodes:
        weight = graph.subgraph.tensors[node.inputs[1]]
        packed = np.asarray(graph.model.buffers[weight.buffer].data).view(np.int8)
        steps = np.stack([packed << 4 >> 4, packed >> 4], -1)
        scales = graph.subgraph.tensors[scales_of_blocks(graph, node.inputs[1])]
        half = np.asarray(graph.model.buffers[scales.buffer].data).view(np.float16)
        values = steps.reshape(-1, 32) * half.astype(np.float32)[:, None]
        found.append(values.reshape(weight.shape))
    return found


def test_blocks_are_widened_as_the_file_says(model, plain):
    weights = from_file(quantize(plain, read_recipe("dynamic-int4-block32")))
    one, two = (layer for layer in model if isinstance(layer, nn.Linear))
    for layer, weight in zip((one, two), weights, strict=True):
        step = layer.weight.detach().unflatten(-1, (-1, 32)).abs().amax(-1) / 7
        error = (layer.weight.detach() - torch.tensor(weight)).unflatten(-1, (-1, 32))
        assert (error.abs() <= 0.52 * step[..., None]).all()
    rounded = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 32))
    for i, layer, weight in zip((0, 2), (one, two), weights, strict=True):
        rounded[i].load_state_dict({"weight": torch.tensor(weight), "bias": layer.bias})
    done = quantize(plain, read_recipe("weight-int4-block32"))
    for engine in ("interpreter", "compiled"):
        found = done.model.run(engine=engine, input=X.numpy())["output_0"]
        assert snr(found, rounded(X).detach().numpy()) > 100
    found = done.coverage["forward"]
    (products,) = (op for op in found.ops if op.op == "FULLY_CONNECTED")
    assert products.formats == {"float32 x int4": 2}
    assert found.quantized_bytes < found.plain_bytes / 6


def test_each_module_has_its_own(plain, tmp_path: Path):
    path = tmp_path / "mixed.toml"
    path.write_text(
        '[[rule]]\nrecipe = "dynamic-int4-block32"\n'
        '[[rule]]\nrecipe = "weight-int4-block32"\nmodule = "2"\n'
    )
    done = quantize(plain, read_recipe(path))
    graph = read_graph(done.model.path, "forward")
    products = [n for n in graph.nodes if n.name == "FULLY_CONNECTED"]
    in_blocks = [scales_of_blocks(graph, n.inputs[1]) is not None for n in products]
    assert in_blocks == [True, False]
    assert done.coverage["forward"].quantized_ops == 2


def test_layers_are_measured_behind_the_widening(plain):
    done = quantize(plain, read_recipe("weight-int4-block32"))
    found = layers(
        plain.path, done.model.path, [{"input": X.numpy()}], signature="forward"
    )
    assert {layer.module for layer in found} == {"0", "2"}
    assert all(15 < layer.created < 30 for layer in found)


def test_a_large_file_is_read_and_rewritten():
    """From 256 KB on, ai-edge-quantizer puts weights behind the flatbuffer."""
    model = nn.Linear(1024, 1024).eval()
    x = torch.randn(2, 1024)
    plain = to_litert(model, (x,))
    for recipe in ("dynamic-int4-block32", "weight-int4-block32"):
        done = quantize(plain, read_recipe(recipe))
        assert 0.5 < done.coverage["forward"].quantized_bytes / 2**20 < 0.6
        found = done.model.run(input=x.numpy())["output_0"]
        assert snr(found, model(x).detach().numpy()) > 18
