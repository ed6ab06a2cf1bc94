"""What torchao's quantize_ becomes in a .tflite, and what is said of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import tpu_export as tx
from tpu_export.converters.litert import LiteRtModel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao import quantization as ao

INT4, AXIS, GROUP = torch.int4, ao.PerAxis(0), ao.PerGroup(16)
GROUPED = "a scale for each group of an axis"
EACH_CALL = "a scale of each call for other ops than products with integer weights"
FIXED = "integers that are not dequantized by the same scale"


class Halves(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.model(x.bfloat16()).float()
        return y


def quantized(config: Any, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 16))
    model = model.eval().to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ao.quantize_(model, config)
    return (model if dtype == torch.float32 else Halves(model)).eval()


def converted(config: Any, dtype: torch.dtype = torch.float32) -> LiteRtModel:
    return tx.to_litert(quantized(config, dtype), (torch.randn(4, 32),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dynamic_activations_are_left_to_the_kernels(dtype: torch.dtype) -> None:
    config = ao.Int8DynamicActivationIntxWeightConfig(INT4, AXIS)
    edge = converted(config, dtype)
    found = edge.report.integers
    assert (found.dynamic, found.weights, found.floats) == (2, 2, ())
    assert found.ops == {"forward": {"FULLY_CONNECTED": {"float32 x int8": 2}}}


@pytest.mark.parametrize(
    "config", [ao.IntxWeightOnlyConfig(INT4, AXIS), ao.Int8WeightOnlyConfig()]
)
def test_weights_alone_are_stored_as_integers(config: Any) -> None:
    edge = converted(config)
    found = edge.report.integers
    assert (found.integers, found.weights, found.floats) == (0, 2, ())
    ops = edge.report.ops["forward"]
    assert (ops["DEQUANTIZE"], ops["FULLY_CONNECTED"]) == (2, 2)
    assert "CAST" not in ops


def test_sums_of_integers_are_products_of_floats_that_hold_them() -> None:
    edge = converted(ao.Int8DynamicActivationInt8WeightConfig())
    assert edge.report.ops["forward"]["FULLY_CONNECTED"] == 2
    assert edge.report.integers.weights == 2


class Mixed(nn.Module):
    """Integers of one type: beside values with a scale of each call, and beside plain ones."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.randint(-127, 128, (16, 16), dtype=torch.int8))
        self.register_buffer("v", torch.randint(-127, 128, (16, 16), dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = ((1, 16), torch.int8, -128, 127)
        ao_ops = torch.ops.torchao
        scale, zero = ao_ops.choose_qparams_affine(x, "ASYMMETRIC", [1, 16], *grid[1:])
        n = ao_ops.quantize_affine(x, [1, 16], scale, zero, *grid[1:])
        y = ao_ops.dequantize_affine(n, [1, 16], scale, zero, *grid[1:])
        return y @ self.w.float() / 500 + x @ self.v.float() / 500


def test_a_plain_value_is_not_rounded_beside_one_that_is() -> None:
    edge = tx.to_litert(Mixed().eval(), (torch.randn(4, 16),))
    assert edge.report.integers.dynamic == 0
    assert set(edge.report.integers.floats) == {EACH_CALL}


@pytest.mark.parametrize(
    ("config", "reasons"),
    [
        (ao.IntxWeightOnlyConfig(INT4, GROUP), [GROUPED]),
        (ao.Int8WeightOnlyConfig(granularity=GROUP), [GROUPED]),
        (
            ao.Int8DynamicActivationIntxWeightConfig(INT4, GROUP),
            [GROUPED, EACH_CALL],
        ),
        (
            ao.IntxWeightOnlyConfig(INT4, AXIS, ao.MappingType.ASYMMETRIC),
            ["a weight with a zero point"],
        ),
        (ao.Int8DynamicActivationInt8WeightConfig(), [EACH_CALL]),
        (
            ao.Int8StaticActivationInt8WeightConfig(
                torch.tensor([[0.03]]), granularity=ao.PerTensor()
            ),
            [FIXED],
        ),
    ],
    ids=["group", "int8 group", "dynamic group", "zero point", "dynamic", "static"],
)
def test_what_is_float_arithmetic_is_said(config: Any, reasons: list[str]) -> None:
    found = converted(config).report.integers
    assert found.integers == found.dynamic == 0
    assert set(found.floats) == set(reasons)


def test_8_bit_floats_become_float32() -> None:
    edge = converted(ao.Float8WeightOnlyConfig())
    assert edge.report.ops["forward"] == {"FULLY_CONNECTED": 2}


def test_a_dynamic_batch_is_float_arithmetic_and_said() -> None:
    model = quantized(ao.Int8DynamicActivationIntxWeightConfig(INT4, AXIS))
    dims = ({0: torch.export.Dim("batch", min=2, max=4)},)
    edge = tx.to_litert(model, (torch.randn(4, 32),), dynamic_shapes=dims)
    x = torch.randn(4, 32)
    got = edge.run(signature="forward_batch4", input=x.numpy())["output_0"]
    torch.testing.assert_close(torch.tensor(got), model(x).detach())
    assert set(edge.report.integers.floats) == {"a program with dynamic dimensions"}
    assert len(edge.report.integers.floats) == 4 * len(edge.signatures)
