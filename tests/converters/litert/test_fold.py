"""What depends on constants only is computed before, not at each load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert import adapter
from tpu_export.converters.litert.adapter import Conversion, SignatureJob
from tpu_export.converters.litert.engines import Calls, run_calls
from tpu_export.converters.litert.fold import constant_ops, fold_constants
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.litert.static import static_program
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convert a convolution and its batch norm, whose filter the converter cannot read."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
    captured = capture(nn.Sequential(*layers).eval(), (torch.randn(1, 16, 8, 8),))
    static = static_program(lower(captured, target="litert").program, {})
    weights = [*static.weights.values()]
    job = SignatureJob("forward", static.module, weights, ["input"], ["output_0"])
    path = tmp_path_factory.mktemp("fold") / "conv.tflite"
    conversion = Conversion()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "folded", lambda *_: False)
        conversion.add(job, conversion.parse(job.module))
    conversion.convert(path)
    return path


def test_weights_are_constants_again(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "folded.tflite"
    assert constant_ops(read_graph(plain, "forward")) != []
    assert fold_constants(plain, "forward", path)
    graph = read_graph(path, "forward")
    assert constant_ops(graph) == []
    convolution = next(n for n in graph.nodes if n.name == "CONV_2D")
    assert graph.is_constant(convolution.inputs[1])
    assert path.stat().st_size <= plain.stat().st_size + 200


def test_the_file_computes_the_same(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "folded.tflite"
    fold_constants(plain, "forward", path)
    x = np.random.default_rng(0).standard_normal((1, 16, 8, 8), np.float32)
    calls = [Calls("forward", [{"input": x}])]
    ((before,),), ((after,),) = (
        run_calls(p, "interpreter", calls) for p in (plain, path)
    )
    np.testing.assert_allclose(after["output_0"], before["output_0"], atol=1e-6)


def test_a_file_without_such_ops_is_left(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "folded.tflite"
    fold_constants(plain, "forward", path)
    assert not fold_constants(path, "forward", tmp_path / "again.tflite")
