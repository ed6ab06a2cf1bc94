"""What an export to LiteRT may be told, and two signatures with one dimension."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.export import Dim

from tpu_export.converters.litert.quantize.errors import CalibrationError, RecipeError
from tpu_export.exporter.capture import Captured, capture
from tpu_export.parity.export import export
from tpu_export.parity.litert_options import LiteRtOptions
from tpu_export.parity.verdict import Gates, QuantizationNoiseError

BATCH = Dim("b", max=16)
MODEL = torch.nn.Linear(8, 16).eval()


def signatures() -> dict[str, Captured]:
    shapes = ({0: BATCH},)
    return {
        name: capture(MODEL, (torch.randn(n, 8),), dynamic_shapes=shapes, name=name)
        for name, n in (("few", 2), ("many", 8))
    }


def test_each_signature_has_the_sizes_of_its_example(tmp_path: Path) -> None:
    output = tmp_path / "m.tflite"
    draw = np.random.default_rng(0)
    data = {
        name: [{"input": draw.standard_normal((n, 8), np.float32)}]
        for name, n in (("few", 2), ("many", 8))
    }
    options = LiteRtOptions(
        "static-int8", data, "uint8", Gates(min_snr=30), dynamic_dims="example"
    )
    result = export(signatures(), target="litert", output=output, litert=options)
    assert result.quantization is not None
    borders = [line for line in result.quantization["text"] if " is uint8: " in line]
    assert len(borders) == 4
    assert result.quantization["data"] == "2 calls of --calibrate"
    names = {row["signature"] for row in result.quantization["verdict"]["agreements"]}
    assert names == {"few", "many"}


def test_options_have_no_use_elsewhere(tmp_path: Path) -> None:
    options, output = LiteRtOptions("dynamic-int8"), tmp_path / "m.tpuexe"
    with pytest.raises(RecipeError, match="target cloud-tpu is not quantized"):
        export(
            MODEL, (torch.randn(2, 8),), topologies=(), output=output, litert=options
        )
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (LiteRtOptions("static-int8"), CalibrationError),
        (LiteRtOptions("int3"), RecipeError),
        (LiteRtOptions(calibrate="x.npz"), RecipeError),
        (LiteRtOptions(io_dtype="int8"), RecipeError),
        (LiteRtOptions(gates=Gates(min_snr=3)), RecipeError),
        (LiteRtOptions("weight-int4", gates=Gates(min_snr=90)), QuantizationNoiseError),
    ],
)
def test_what_cannot_be_leaves_nothing(
    options: LiteRtOptions, error: type[Exception], tmp_path: Path
) -> None:
    output = tmp_path / "m.tflite"
    with pytest.raises(error):
        export(
            MODEL, (torch.randn(2, 8),), target="litert", output=output, litert=options
        )
    assert not list(tmp_path.iterdir())
