"""One .tflite for any size: right in both engines as sizes grow and shrink, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import tpu_export as tx
from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.engines import ENGINES, Calls, run_calls
from tpu_export.converters.litert.errors import LiteRtInputError
from tpu_export.converters.litert.quantize.errors import RecipeError
from tpu_export.converters.litert.symbolic import SymbolicSizeError
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.parity.litert import to_litert
from tpu_export.parity.litert_options import LiteRtOptions


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.layers)


def _attend(x: torch.Tensor, words: nn.Module, layer: nn.Module) -> torch.Tensor:
    result: torch.Tensor = layer(words(x)).mean(1)
    return result


def _split_heads(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    heads = layer(x).view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
    return heads.reshape(x.shape[0], 2, -1)


RIGHT = {
    "linear": (
        lambda x, f: F.gelu(f(x)).softmax(-1),
        [nn.Linear(8, 4)],
        lambda n: torch.randn(n, 8),
    ),
    "convolution": (
        lambda x, c, b: F.max_pool2d(torch.relu(b(c(x))), 2).flatten(1),
        [nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4)],
        lambda n: torch.randn(n, 3, 9, 8),
    ),
    "transformer": (
        _attend,
        [
            nn.Embedding(50, 8),
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        ],
        lambda n: torch.randint(0, 50, (n, 5)),
    ),
    "heads": (_split_heads, [nn.Linear(8, 8)], lambda n: torch.randn(n, 3, 8)),
    "integers": (
        lambda x: (x * 2**33, x > 3, x.sum(1)),
        [],
        lambda n: torch.arange(3 * n).view(n, 3),
    ),
    "reduced": (lambda x: (x.sum(0), x.amax(0)), [], lambda n: torch.randn(n, 3)),
    "convt": (
        lambda x, c: c(x),
        [nn.ConvTranspose2d(3, 4, 3, stride=2)],
        lambda n: torch.randn(n, 3, 5, 5),
    ),
    "groupnorm": (
        lambda x, c: c(x),
        [nn.GroupNorm(2, 4)],
        lambda n: torch.randn(n, 4, 5),
    ),
}


def symbolic(module: nn.Module, x: torch.Tensor, axis: int = 0) -> LiteRtModel:
    shapes = ({axis: Dim("batch", max=64)},)
    return to_litert(module, (x,), dynamic_shapes=shapes, dynamic_dims="symbolic")


@pytest.mark.parametrize("name", RIGHT)
def test_right_as_sizes_grow_and_shrink(name: str) -> None:
    function, layers, draw = RIGHT[name]
    torch.manual_seed(0)
    module = Function(function, *layers).eval()
    model = symbolic(module, draw(3))
    assert [*model.signatures] == ["forward"]
    inputs = [draw(n) for n in (5, 2, 7, 1, 40, 3)]
    names = [spec.name for spec in model.signatures["forward"].outputs]
    calls = Calls("forward", [{"x": as_numpy(x)} for x in inputs])
    for engine in ENGINES:
        (found,) = run_calls(model.path, engine, [calls])
        for x, outputs in zip(inputs, found, strict=True):
            with torch.no_grad():
                made = module(x)
            wanted = made if isinstance(made, tuple) else (made,)
            got = tuple(torch.from_numpy(outputs[name]) for name in names)
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


REFUSED = {
    "BROADCAST_TO of aten.expand": (
        lambda x, f: torch.cat([f.weight[:1].expand(x.shape[0], 1, 4), x], 1),
        [nn.Embedding(1, 4)],
        lambda n: torch.randn(n, 5, 4),
    ),
    "CONCATENATION of aten.new_zeros": (
        lambda x: torch.cat([x.new_zeros(x.shape[0], 2), x], 1),
        [],
        lambda n: torch.randn(n, 3),
    ),
    "ADD of aten.add": (
        lambda x: x + torch.arange(x.shape[0])[:, None],
        [],
        lambda n: torch.randn(n, 7),
    ),
    "SLICE of aten.slice": (
        lambda x: x[1:] - x[:-1],
        [],
        lambda n: torch.randn(n, 3),
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_holds_a_size_is_refused_by_name(words: str) -> None:
    function, layers, draw = REFUSED[words]
    with pytest.raises(SymbolicSizeError, match=f"{words}.*test_litert_symbolic"):
        symbolic(Function(function, *layers).eval(), draw(3))


def test_two_dims_without_a_maximum(tmp_path: Path) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.head(x)).mean(1)

    shapes = {"x": {0: Dim("batch"), 1: Dim("seq")}}
    x, model = torch.randn(2, 5, 8), Pooled().eval()
    captured = tx.capture(model, (x,), dynamic_shapes=shapes)
    path = tmp_path / "pooled.tflite"
    done = tx.export(
        captured,
        target="litert",
        output=path,
        litert=LiteRtOptions(dynamic_dims="symbolic"),
    )
    sizes = {row.signature for row in done.parity.rows}
    assert {
        "forward_batch2_seq5",
        "forward_batch3_seq5",
        "forward_batch1_seq1",
    } <= sizes
    assert {row.rung for row in done.parity.rows} == {
        "tflite interpreter",
        "tflite compiled",
    }
    more = torch.randn(9, 4, 8)
    calls = Calls("forward", [{"x": as_numpy(call)} for call in (more, x)])
    for engine in ENGINES:
        ((first, second),) = run_calls(path, engine, [calls])
        with torch.no_grad():
            torch.testing.assert_close(torch.tensor(first["output_0"]), model(more))
            torch.testing.assert_close(torch.tensor(second["output_0"]), model(x))


def test_a_size_that_pads_otherwise_is_refused() -> None:
    # Even lengths get a PAD before, odd ones SAME: one file cannot have both.
    layer = nn.Conv1d(3, 4, 3, stride=2, padding=1)
    with pytest.raises(SymbolicSizeError, match=r"another size|SAME"):
        symbolic(
            Function(lambda x, f: f(x), layer).eval(), torch.randn(2, 3, 9), axis=2
        )


def test_a_static_model_and_quantization_are_refused() -> None:
    with pytest.raises(SymbolicSizeError, match="every size of the model is fixed"):
        to_litert(nn.Linear(2, 2), (torch.ones(1, 2),), dynamic_dims="symbolic")
    with pytest.raises(RecipeError, match="symbolic"):
        LiteRtOptions("dynamic-int8", dynamic_dims="symbolic").check()


class Looked(nn.Module):
    """Ids of a table of 10 rows, and a second input with a size that follows from the first's."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.words(ids) + y


@pytest.fixture(scope="module")
def looked() -> LiteRtModel:
    batch = Dim("batch", min=2, max=64)
    args = (torch.randint(0, 10, (3,)), torch.randn(3, 4))
    shapes = ({0: batch}, {0: batch})
    return to_litert(
        Looked().eval(), args, dynamic_shapes=shapes, dynamic_dims="symbolic"
    )


@pytest.mark.parametrize(
    ("n", "rows", "last", "words"),
    [
        (65, 65, 9, r"dimension batch = 65 is outside 2 … 64: ids has size 65 in axis 0"),
        (1, 1, 9, r"batch = 1 is outside 2 … 64"),
        (3, 4, 9, r"y has size 4 in axis 0, expected batch = 3 as in axis 0 of ids"),
        (3, 3, 10, r"ids holds 10; words.weight has 10 rows: .*9"),
    ],
)  # fmt: skip
def test_a_call_outside_of_the_ranges_is_an_error(
    looked: LiteRtModel, n: int, rows: int, last: int, words: str
) -> None:
    ids = np.full(n, last, np.int64)
    with pytest.raises(LiteRtInputError, match=words):
        looked.run(ids=ids, y=np.ones((rows, 4), np.float32))


def test_the_ends_of_the_ranges_are_inside(looked: LiteRtModel) -> None:
    for n in (2, 64):
        found = looked.run(ids=np.full(n, 9), y=np.ones((n, 4), np.float32))
        assert found["output_0"].shape == (n, 4)
