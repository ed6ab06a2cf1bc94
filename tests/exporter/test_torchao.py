"""Models that torchao's quantize_ quantized: each configuration that torchao runs on a CPU."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tpu_export as tx
from tpu_export.exporter.programs import ProgramFileError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao import quantization as ao

GROUP, AXIS = ao.PerGroup(32), ao.PerAxis(0)
TENSOR, ASYMMETRIC = ao.PerTensor(), ao.MappingType.ASYMMETRIC
INT4 = torch.int4
CONFIGS: dict[str, Callable[[], Any]] = {
    "int8": ao.Int8WeightOnlyConfig,
    "int8 group": lambda: ao.Int8WeightOnlyConfig(granularity=GROUP),
    "int8 by int8": ao.Int8DynamicActivationInt8WeightConfig,
    "int8 by int8 tensor": lambda: ao.Int8DynamicActivationInt8WeightConfig(
        granularity=TENSOR
    ),
    "int8 by int8 asymmetric": lambda: ao.Int8DynamicActivationInt8WeightConfig(
        act_mapping_type=ASYMMETRIC
    ),
    "int8 by int8 static": lambda: ao.Int8StaticActivationInt8WeightConfig(
        torch.tensor([[0.03]]), granularity=TENSOR
    ),
    "int4": lambda: ao.IntxWeightOnlyConfig(INT4, AXIS),
    "int4 group": lambda: ao.IntxWeightOnlyConfig(INT4, GROUP),
    "int3 group asymmetric": lambda: ao.IntxWeightOnlyConfig(
        torch.int3, GROUP, ASYMMETRIC
    ),
    "int8 by int4": lambda: ao.Int8DynamicActivationIntxWeightConfig(INT4, AXIS),
    "int8 by int4 group": lambda: ao.Int8DynamicActivationIntxWeightConfig(INT4, GROUP),
    "int8 by int4 asymmetric": lambda: ao.Int8DynamicActivationIntxWeightConfig(
        INT4, AXIS, ASYMMETRIC
    ),
    "float8": ao.Float8WeightOnlyConfig,
    "float8 tensor": lambda: ao.Float8WeightOnlyConfig(granularity=TENSOR),
    "float8 group": lambda: ao.Float8WeightOnlyConfig(granularity=GROUP),
    "float8 e5m2": lambda: ao.Float8WeightOnlyConfig(torch.float8_e5m2),
}


class Attention(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = (
            f(x).view(n, t, self.heads, -1).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        z: Tensor = self.o(y.transpose(1, 2).reshape(n, t, width))
        return z


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))


class Floats(nn.Module):
    """Takes and gives float32, as a .tflite does, around a model of a half type."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.model(x.bfloat16()).float()
        return y


def quantized(name: str, build: Callable[[], nn.Module], dtype: torch.dtype) -> Any:
    torch.manual_seed(0)
    model = build().eval().to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ao.quantize_(model, CONFIGS[name]())
    return model if dtype == torch.float32 else Floats(model)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (perceptron, (4, 64)),
    "attention": (Attention, (2, 5, 64)),
}


@pytest.mark.parametrize("target", ["cloud-tpu", "litert"])
@pytest.mark.parametrize(
    ("model", "dtype"),
    [("perceptron", torch.float32), ("attention", torch.bfloat16)],
    ids=str,
)
@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_exported_is_what_torchao_computes(
    name: str, model: str, dtype: torch.dtype, target: str, tmp_path: Path
) -> None:
    if "static" in name:  # torchao wants as many axes of the scale as of the input
        model = "perceptron"
    build, shape = MODELS[model]
    done = tx.export(
        quantized(name, build, dtype),
        (torch.randn(shape),),
        target=target,
        topologies=(),
        output=tmp_path / "m",
    )
    assert done.parity is not None
    assert done.parity.passed
    assert done.parity.worst is not None
    assert done.parity.worst.max_rel < (2e-6 if dtype == torch.float32 else 0.05)


@pytest.mark.parametrize("name", ["int8 by int8", "int8 by int4 group"])
def test_a_dynamic_batch(name: str, tmp_path: Path) -> None:
    model = quantized(name, perceptron, torch.float32)
    captured = tx.capture(
        model,
        (torch.randn(4, 64),),
        dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},),
    )
    program = tx.load(captured.lower().save(tmp_path / "m.tpuexe"), device="cpu")
    for n in (2, 33):
        x = torch.randn(n, 64)
        torch.testing.assert_close(
            torch.tensor(program(x.numpy())), model(x).detach(), rtol=1e-5, atol=1e-5
        )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = quantized("int8 by int4", perceptron, torch.float32)
    torch.export.save(
        torch.export.export(model, (torch.randn(4, 64),)), tmp_path / "m.pt2"
    )
    return tmp_path / "m.pt2"


def test_a_file_without_torchao_says_what_to_install(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("torchao.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(ProgramFileError, match="needs the module torchao") as error:
        tx.capture(saved)
    assert "pip install torchao" in error.value.hint


def test_a_file_whose_weights_are_plain_is_read_by_a_process_without_torchaos_ops(
    tmp_path: Path,
) -> None:
    model = quantized("int8 by int4", perceptron, torch.float32)
    program = torch.export.export(model, (torch.randn(4, 64),)).run_decompositions({})
    torch.export.save(program, tmp_path / "m.pt2")
    code = "import sys, tpu_export; tpu_export.capture(sys.argv[1]).lower()"
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "m.pt2"], check=True, timeout=120
    )


def test_a_file_of_another_torchao_says_so(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ao, "IntxUnpackedToInt8Tensor")
    with pytest.raises(ProgramFileError, match="installed torchao does not have"):
        tx.capture(saved)
