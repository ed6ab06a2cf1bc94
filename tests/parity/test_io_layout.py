"""Inputs and outputs with channels last: proved, quantized, refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.cli.tflite import replay
from tpu_export.cli.tflite import run as run_file
from tpu_export.converters.litert.contents import read_contents
from tpu_export.converters.litert.document import golden
from tpu_export.converters.litert.engines import ENGINES
from tpu_export.exporter.capture import capture
from tpu_export.parity.annotations import Annotations
from tpu_export.parity.export import run
from tpu_export.parity.io_layout import IoLayoutError, laid_out_job
from tpu_export.parity.job import Job
from tpu_export.parity.litert import to_litert
from tpu_export.parity.litert_options import IoLayout, LiteRtOptions
from tpu_export.parity.relaid import as_the_file


class Counting(nn.Module):
    """Two images, one of them written to, state, and results of two ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, image: torch.Tensor, scale: torch.Tensor) -> dict[str, object]:
        self.calls += 1
        image.mul_(scale)
        y = torch.relu(self.conv(image)).add(image.view(1, -1).sum())
        return {"map": y, "mean": y.mean((2, 3))}


def job(path: Path, layout: IoLayout) -> Job:
    torch.manual_seed(0)
    example = (torch.randn(1, 3, 8, 6), torch.rand(1, 3, 1, 1))
    captured = capture(Counting().eval(), example)
    options = LiteRtOptions(io_layout=layout)
    return Job({"forward": captured}, path, target="litert", litert=options)


def test_the_file_takes_and_gives_channels_last(tmp_path: Path) -> None:
    made = laid_out_job(job(tmp_path / "m.tflite", {"*": "nhwc", "scale": "nchw"}))
    shapes = {
        s.name: s.shape
        for c in made.signatures.values()
        for s in (*c.signature.inputs, *c.signature.outputs)
    }
    assert shapes == {
        "image": (1, 8, 6, 3),
        "scale": (1, 3, 1, 1),
        "map": (1, 8, 6, 4),
        "mean": (1, 4),
    }
    result = run(made)
    assert result.parity is not None
    assert result.parity.passed
    assert "channels last in forward: image, map" in result.notes


def test_calibration_stays_as_torch_has_it(tmp_path: Path) -> None:
    made = laid_out_job(job(tmp_path / "m.tflite", {"image": "nhwc"}))
    array = np.arange(24.0).reshape(1, 3, 4, 2)
    found = as_the_file(made.signatures["forward"], {"image": array, "scale": array})
    np.testing.assert_array_equal(found["image"], array.transpose(0, 2, 3, 1))
    assert found["scale"] is array


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("nwhc", "no layout 'nwhc'"),
        ({"imge": "nhwc"}, "no input or output 'imge'"),
        ({"mean": "nhwc"}, "'mean' has 2 dimensions, nhwc has 4"),
        ({"image": "ndhwc"}, "'image' has 4 dimensions, ndhwc has 5"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, layout: IoLayout, words: str
) -> None:
    with pytest.raises(IoLayoutError, match=words) as caught:
        laid_out_job(job(tmp_path / "m.tflite", layout))
    assert caught.value.code == "TPX-0630"


STATIC = {
    "recipe": "static-int8",
    "calibrate": [
        {
            "image": np.random.default_rng(i).standard_normal((1, 3, 8, 6), np.float32),
            "scale": np.ones((1, 3, 1, 1), np.float32),
        }
        for i in range(3)
    ],
}
KINDS: dict[str, dict[str, Any]] = {
    "float": {},
    "dynamic-int8": {"recipe": "dynamic-int8"},
    "static-int8": STATIC,
    "static-int8 int8": {**STATIC, "io_dtype": "int8"},
    "static-int8 uint8": {**STATIC, "io_dtype": "uint8"},
}


def _written(path: Path, options: Mapping[str, Any]) -> LiteRtOptions:
    layout: IoLayout = {"*": "nhwc", "scale": "nchw"}
    made = job(path, layout)
    chosen = LiteRtOptions(
        io_layout=layout, annotations=Annotations(golden="all"), **options
    )
    run(laid_out_job(replace(made, litert=chosen)))
    return chosen


QUICK = {"float", "static-int8 int8"}
CHOSEN = [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]


@pytest.mark.parametrize("kind", CHOSEN)
def test_golden_arrays_are_as_the_file_has_them(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.tflite"
    dtype = _written(path, KINDS[kind]).io_dtype
    contents = read_contents(path)
    (arrays,) = golden(path, contents.metadata).values()
    slots = contents.signatures["forward"]
    own = {f"inputs/{s.name}": s for s in slots.inputs}
    own |= {f"outputs/{s.name}": s for s in slots.outputs}
    kept = {name: array for name, array in arrays.items() if name in own}
    assert kept.keys() >= {"inputs/image", "inputs/scale", "outputs/map"}
    for name, array in kept.items():
        wanted = tuple(own[name].shape), own[name].dtype
        assert (array.shape, array.dtype.name) == wanted, name
    assert arrays["inputs/image"].shape == (1, 8, 6, 3)
    assert arrays["inputs/image"].dtype == dtype
    for engine in ENGINES:
        table, good = replay(path, engine)
        assert good, table


def test_a_run_takes_channels_last(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    _written(path, {})
    (arrays,) = golden(path, read_contents(path).metadata).values()
    given = {n: arrays[f"inputs/{n}"] for n in ("image", "scale")}
    np.savez(tmp_path / "x.npz", **given)
    _, found, _ = run_file(path, str(tmp_path / "x.npz"), None, "compiled")
    np.testing.assert_allclose(
        found["map"], arrays["outputs/map"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("layer", "shape", "layout"),
    [
        (nn.Conv3d(3, 4, 3), (2, 3, 6, 7, 8), "ndhwc"),
        (nn.Conv1d(3, 4, 3), (2, 3, 20), "nlc"),
        (nn.Conv2d(3, 4, 3), (2, 3, 6, 7), "nhwc"),
    ],
)
def test_each_number_of_dimensions_has_its_layout(
    layer: nn.Module, shape: tuple[int, ...], layout: str
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    model = to_litert(layer.eval(), (x,), io_layout=layout)
    assert "TRANSPOSE" not in model.report.ops["forward"]
    for engine in ENGINES:
        found = model.run(engine=engine, input=x.movedim(1, -1).numpy())
        with torch.no_grad():
            want = layer(x).movedim(1, -1)
        torch.testing.assert_close(torch.tensor(found["output_0"]), want)
