"""Small models to .tflite and back: names, dtypes, state, both engines, refusals."""

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

from tpu_export.converters.litert import LiteRtModel, convert
from tpu_export.converters.litert.adapter import probe
from tpu_export.converters.litert.errors import (
    LiteRtConversionError,
    LiteRtInputError,
    LiteRtUnsupportedOpsError,
)
from tpu_export.converters.litert.model import LiteRtWriteError
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.coverage import UnsupportedOpsError
from tpu_export.converters.stablehlo.ops.sorting import LiteRtUnsupportedError
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower


def converted(model: Any, *args: Any, **kwargs: Any) -> LiteRtModel:
    program = lower(capture(model, args, kwargs), target="litert").program
    return convert({"forward": program})


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.layers)


def test_a_mean_of_whole_planes_is_one_op() -> None:
    pool = nn.AdaptiveAvgPool2d(1)
    made = converted(Fn(lambda x, p: p(x), pool), torch.randn(1, 3, 4, 5))
    assert made.report.ops["forward"]["MEAN"] == 1


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x
        return self.total * 2


class Named(nn.Module):
    def forward(self, cache: dict[str, Any], ids: torch.Tensor) -> dict[str, Any]:
        return {"logits": cache["key"][0] + 1, "next": ids * 2**33}


def test_the_installed_converter_has_what_is_used() -> None:
    assert probe() == []


def test_names_structure_and_int64_are_kept() -> None:
    cache = {"key": [torch.ones(2, 3)]}
    model = converted(Named(), cache, ids=torch.tensor([1, 2]))
    inputs: dict[str, Any] = {
        "cache.key.0": np.ones((2, 3), np.float32),
        "ids": np.array([1, 2]),
    }
    for engine in ("interpreter", "compiled"):
        found = model.run(engine=engine, **inputs)
        assert set(found) == {"logits", "next"}
        assert found["next"].dtype == np.int64
        np.testing.assert_array_equal(found["next"], [2**33, 2**34])


def test_state_is_explicit() -> None:
    model = converted(Counter(), torch.ones(3))
    state = np.zeros(3, np.float32)
    for step in (1, 2, 3):
        found = model.run(x=np.ones(3, np.float32), **{"state.total": state})
        state = found["state.total"]
        np.testing.assert_array_equal(found["output_0"], np.full(3, 2 * step))


class Cached(nn.Module):
    """Begins with a cache of no rows, and takes an input that may be empty."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(0, 3))

    def forward(self, x: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        self.rows.add_(1)
        return torch.cat([x, more, self.rows])


def test_what_has_no_elements_is_refused_by_name() -> None:
    example = (torch.randn(2, 3), torch.randn(0, 3))
    program = lower(capture(Cached(), example, {}), target="litert").program
    with pytest.raises(LiteRtUnsupportedOpsError) as caught:
        convert({"forward": program})
    for words in ("state 'rows' has no elements", "input 'more' has no elements"):
        assert words in str(caught.value)


def test_several_signatures_in_one_file() -> None:
    module = nn.Linear(3, 2)
    programs = {
        name: lower(
            capture(module, (torch.ones(n, 3),), name=name), target="litert"
        ).program
        for name, n in (("one", 1), ("many", 4))
    }
    model = convert(programs)
    assert set(model.report.ops) == {"one", "many"}
    found = model.run(signature="many", input=np.ones((4, 3), np.float32))
    with torch.no_grad():
        np.testing.assert_allclose(
            found["output_0"], module(torch.ones(4, 3)), rtol=1e-5
        )


def test_dynamic_sizes_become_those_of_the_example() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.gelu(self.attend(x)).softmax(-1).reshape(x.shape[0], -1)

    x, module = torch.randn(3, 5, 8), Block().eval()
    shapes = {"x": {0: Dim("batch"), 1: Dim("length")}}
    captured = capture(module, (x,), {}, dynamic_shapes=shapes)
    program = lower(captured, target="litert").program
    model = convert({"forward": program}, dims={"forward": captured.example_dims()})
    with torch.no_grad():
        expected = module(x)
    for engine in ("interpreter", "compiled"):
        found = model.run(engine=engine, x=x.numpy())["output_0"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_bytes_are_reproducible_and_gelu_is_one_op(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Softmax(-1))
    first, second = (converted(module, torch.ones(2, 4)) for _ in range(2))
    path = first.save(tmp_path / "m.tflite")
    assert path.read_bytes() == second.path.read_bytes()
    assert first.report.ops["forward"] == {
        "FULLY_CONNECTED": 1,
        "GELU": 1,
        "SOFTMAX": 1,
    }


def test_a_rebuild_with_folded_large_and_shared_weights_is_the_same_file() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(70, 64)
            self.conv, self.norm = nn.Conv1d(64, 64, 3), nn.BatchNorm1d(64)

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            rows = self.norm(self.conv(self.table(index).mT)).mT
            return F.linear(rows, self.table.weight)

    module, index = Mixed().eval(), torch.arange(8)[None]
    first, second = converted(module, index), converted(module, index)
    assert first.path.read_bytes() == second.path.read_bytes()


def test_wrong_calls_and_places(tmp_path: Path) -> None:
    model = converted(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(LiteRtInputError, match=r"unknown input 'y'.*missing input"):
        model.run(y=np.ones((1, 2)))
    with pytest.raises(LiteRtInputError, match="float64, expected float32"):
        model.run(input=np.ones((1, 2)))
    with pytest.raises(LiteRtWriteError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "m.tflite")


def test_constant_masks_keep_every_bit(right_in_both: Any) -> None:
    shapes = ((1,), (2,), (6,), (8,), (9,), (3, 5), (70, 70))
    masks = [torch.rand(shape) < 0.3 for shape in shapes]
    masks[2] = torch.tensor([True, False, False, False, False, False])

    def hide(x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.where(mask, x, -x) for mask in masks]

    right_in_both(hide, torch.tensor(2.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int8, torch.bool])
def test_results_that_share_a_tensor(right_in_both: Any, dtype: torch.dtype) -> None:
    def share(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x.reshape(-1)
        return x, z, z, y, y, x

    x = torch.tensor([[0, 1, 2], [3, 4, 0]]).to(dtype)
    right_in_both(share, x, x[0, 1].clone())


X = torch.randn(1, 4, 9, 9)
V = torch.tensor([[3.0, 1.0, 2.0, 7.0, 5.0, -1.0]])
I = torch.tensor([[0, 2, 2, 1, 0, 4]])  # noqa: E741

TRAPS: dict[str, tuple[Callable[..., Any], torch.Tensor, tuple[nn.Module, ...]]] = {
    "transposed convolution": (
        lambda x, c, d: (c(x), d(x)),
        X,
        (
            nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
            nn.ConvTranspose2d(4, 4, 3, stride=2, groups=2, dilation=2, bias=False),
        ),
    ),
    "topk": (lambda x: torch.topk(x, 3), V, ()),
    "sort": (lambda x: torch.sort(x, descending=True), V, ()),
    "argsort": (torch.argsort, V, ()),
    "scatter add": (lambda x: torch.zeros(1, 6).scatter_add(1, I, x), V, ()),
    "index put": (
        lambda x: x.index_put((torch.tensor([0]), I[0, :1]), V[0, :1]),
        V,
        (),
    ),
    "max pool with indices": (
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
        X,
        (),
    ),
    "ceil mode": (lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True), X, ()),
    "cumsum": (lambda x: torch.cumsum(x, 1), V, ()),
    "fold": (lambda x: F.fold(F.unfold(x, 3), (9, 9), 3), X, ()),
    "one hot": (lambda x: F.one_hot(I, 6).float() * x[..., None], V, ()),
    "bilinear": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        X,
        (),
    ),
    "complex": (lambda x: torch.fft.rfft(x).abs(), V, ()),
    "double": (lambda x: x.double() / 3, V.double(), ()),
    "grid sample": (
        lambda x: F.grid_sample(x, torch.zeros(1, 2, 2, 2), align_corners=False),
        X,
        (),
    ),
}


REFUSALS = (
    LiteRtConversionError,
    LiteRtUnsupportedError,
    LiteRtUnsupportedOpsError,
    UnsupportedOpsError,
)


@pytest.mark.parametrize("name", TRAPS)
def test_right_or_refused_never_wrong(name: str) -> None:
    function, x, layers = TRAPS[name]
    module = Fn(function, *layers).eval()
    try:
        model = converted(module, x)
    except REFUSALS:
        return
    with torch.no_grad():
        results = module(x)
    expected = [results] if isinstance(results, torch.Tensor) else list(results)
    for engine in ("interpreter", "compiled"):
        found = model.run(engine=engine, x=as_numpy(x))
        outputs = model.signatures["forward"].outputs
        for spec, want in zip(outputs, expected, strict=True):
            got = found[spec.name]
            np.testing.assert_allclose(got, as_numpy(want), rtol=1e-4, atol=1e-5)
