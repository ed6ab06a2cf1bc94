"""What quantized programs compute in a .tflite: integer ops where LiteRT has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from torch import nn

import tpu_export as tx
from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.litert.graph import read_graph
from tpu_export.runtime.errors import TpuExportError

q = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
WEIGHT = (-127, 127, torch.int8)
STEP = 0.05


def on_grid(
    x: torch.Tensor, zero: int = 3, limits: Any = INT8, step: float = STEP
) -> torch.Tensor:
    """Return x rounded to a grid, as a PT2E program writes it."""
    integers = q.quantize_per_tensor.default(x, step, zero, *limits)
    y: torch.Tensor = q.dequantize_per_tensor.default(integers, step, zero, *limits)
    return y


class Product(nn.Module):
    """A product between two quantizations, with a weight for each kind."""

    def __init__(self, weight: str = "channel", limits: Any = INT8) -> None:
        super().__init__()
        self.kind, self.limits = weight, limits
        generator = torch.Generator().manual_seed(0)
        integers = torch.randint(-127, 128, (8, 16), generator=generator)
        self.register_buffer("integers", integers.to(torch.int8))
        self.register_buffer("scales", torch.rand(8, generator=generator) * 1e-2 + 1e-3)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.floats = nn.Parameter(torch.randn(8, 16, generator=generator) / 4)
        self.bias = nn.Parameter(torch.randn(8, generator=generator))

    def weight(self) -> torch.Tensor:
        scales, zeros = self.scales, self.zeros
        if self.kind == "tensor":
            return q.dequantize_per_tensor.default(self.integers, 0.01, 0, *WEIGHT)
        if self.kind == "zero point":
            return q.dequantize_per_channel.default(
                self.integers, scales, zeros + 2, 0, *INT8
            )
        if self.kind == "in the graph":
            integers = q.quantize_per_channel.default(
                self.floats, scales, zeros, 0, *WEIGHT
            )
            return q.dequantize_per_channel.default(integers, scales, zeros, 0, *WEIGHT)
        if self.kind == "transposed":
            integers = self.integers.t().contiguous()
            return q.dequantize_per_channel.default(
                integers, scales, zeros, 1, *WEIGHT
            ).t()
        return q.dequantize_per_channel.default(
            self.integers, scales, zeros, 0, *WEIGHT
        )

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        zero = 0 if self.limits[2] == torch.int16 else 3
        return on_grid(x, zero, self.limits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.linear(self.rounded(x), self.weight(), self.bias)
        return self.rounded(torch.relu(y))


def converted(model: nn.Module, *args: torch.Tensor) -> LiteRtModel:
    """Convert, and compare both engines with eager: to a step of the result's grid."""
    edge = tx.to_litert(model.eval(), args)
    with torch.no_grad():
        expected = model(*args).numpy()
    inputs = dict(
        zip((s.name for s in edge.signatures["forward"].inputs), args, strict=True)
    )
    for engine in ("interpreter", "compiled"):
        feeds = {name: x.numpy() for name, x in inputs.items()}
        got = edge.run(engine=engine, **feeds)["output_0"]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1.01 * STEP)
    return edge


def dtypes(edge: LiteRtModel, op: str) -> list[list[str]]:
    """Return the dtypes of what ops of a kind read and give."""
    names = {0: "float32", 2: "int32", 7: "int16", 9: "int8", 4: "int64"}
    graph = read_graph(edge.path, "forward")
    return [
        [names[graph.subgraph.tensors[t].type] for t in (*n.inputs, *n.outputs)]
        for n in graph.nodes
        if n.name == op
    ]


@pytest.mark.parametrize("weight", ["channel", "tensor", "in the graph", "transposed"])
def test_a_product_is_one_integer_op(weight: str) -> None:
    edge = converted(Product(weight), torch.randn(4, 16))
    assert dtypes(edge, "FULLY_CONNECTED") == [["int8", "int8", "int32", "int8"]]
    assert set(edge.report.ops["forward"]) == {
        "QUANTIZE",
        "FULLY_CONNECTED",
        "DEQUANTIZE",
    }
    assert (edge.report.integers.integers, edge.report.integers.floats) == (2, ())
    assert edge.report.integers.ops == {
        "forward": {"FULLY_CONNECTED": {"int8 x int8": 1}}
    }


def test_uint8_activations_are_int8_of_another_zero_point() -> None:
    edge = converted(Product(limits=(0, 255, torch.uint8)), torch.rand(4, 16))
    assert dtypes(edge, "FULLY_CONNECTED") == [["int8", "int8", "int32", "int8"]]


def test_int16_activations() -> None:
    limits = (-(2**15), 2**15 - 1, torch.int16)
    edge = converted(Product(limits=limits), torch.randn(4, 16))
    assert dtypes(edge, "FULLY_CONNECTED")[0][0] == "int16"


class Fn(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.product = Product()

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(self.product, *args)


def _of_channels(model: Product, x: torch.Tensor) -> torch.Tensor:
    grid = (model.scales, model.zeros, 1, *INT8)
    integers = q.quantize_per_channel.default(x.view(8, 8), *grid)
    return q.dequantize_per_channel.default(integers, *grid).view(4, 16)


def _counted(model: Product, x: torch.Tensor) -> torch.Tensor:
    integers = q.quantize_per_tensor.default(x, STEP, 0, *INT8)
    return integers.float() * STEP


def _rescaled(model: Product, x: torch.Tensor) -> torch.Tensor:
    integers = q.quantize_per_tensor.default(x, STEP, 0, *INT8)
    return q.dequantize_per_tensor.default(integers, 2 * STEP, 0, *INT8) / 2


def _dynamic_sum(model: Product, x: torch.Tensor) -> torch.Tensor:
    eps = torch.finfo(torch.float32).eps
    scale, zero = q.choose_qparams.tensor(x, -128, 127, eps, torch.int8)
    integers = q.quantize_per_tensor.tensor(x, scale, zero, *INT8)
    return q.dequantize_per_tensor.tensor(integers, scale, zero, *INT8) + x


FLOATS = {
    "an activation with a scale for each channel": Fn(_of_channels),
    "an activation of integers from -100 to 100": Product(
        limits=(-100, 100, torch.int8)
    ),
    "a weight with a zero point": Product("zero point"),
    "integers that are not dequantized by the same scale": Fn(_counted),
    "integers that are not dequantized by the same scale ": Fn(_rescaled),
    "a scale of each call for other ops than products with integer weights": Fn(
        _dynamic_sum
    ),
}


@pytest.mark.parametrize("reason", FLOATS)
def test_what_litert_has_no_integers_for_is_float_and_said(reason: str) -> None:
    edge = converted(FLOATS[reason], torch.randn(4, 16))
    assert set(edge.report.integers.floats) == {reason.strip()}
    assert any(reason.strip() in line for line in edge.report.integers.lines())


class Depthwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        integers = torch.randint(-127, 128, (6, 1, 3, 3), generator=generator)
        self.register_buffer("integers", integers.to(torch.int8))
        self.register_buffer("scales", torch.rand(6, generator=generator) * 1e-2 + 1e-3)
        self.register_buffer("zeros", torch.zeros(6, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = q.dequantize_per_channel.default(
            self.integers, self.scales, self.zeros, 0, *WEIGHT
        )
        y = nn.functional.conv2d(on_grid(x), weight, groups=6, padding=1)
        return on_grid(torch.clamp(y, 0, 6), -128)


class Loop(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.cond(
            x.sum() > 0, lambda x: on_grid(x), lambda x: on_grid(x) + STEP, (x,)
        )
        return y


class Kept(nn.Module):
    """Keys of an attention as integers in the state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(4, 8, dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        old = q.dequantize_per_tensor.default(self.keys, STEP, 0, *INT8)
        self.keys.copy_(q.quantize_per_tensor.default(x, STEP, 0, *INT8))
        return old + x


def test_what_cannot_be_known_before_a_call_is_said() -> None:
    edge = converted(Loop(), torch.rand(4, 8))
    assert set(edge.report.integers.floats) == {"a quantization in a loop or branch"}
    edge = tx.to_litert(Kept(), (torch.rand(4, 8),))
    assert set(edge.report.integers.floats) == {
        "integers that no quantization of the model makes",
        "integers that are not dequantized by the same scale",
    }


class Others(nn.Module):
    """Integer weights of a table, a transposed convolution and a cell."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        for name, shape in {
            "table": (9, 8),
            "filter": (8, 4, 2),
            "cell": (8, 8),
        }.items():
            integers = torch.randint(-127, 128, shape, generator=generator)
            self.register_buffer(name, integers.to(torch.int8))

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        table, filters, cell = (
            q.dequantize_per_tensor.default(t, 0.004, 0, *WEIGHT)
            for t in (self.table, self.filter, self.cell)
        )
        x = on_grid(nn.functional.embedding(i, table), step=0.01)
        y = on_grid(torch.tanh(x @ cell), step=0.01)
        y = nn.functional.conv_transpose1d(y.transpose(1, 2), filters, stride=2)
        return on_grid(y, step=0.02) * on_grid(cell[0, :4, None])


def test_integer_weights_of_other_ops() -> None:
    edge = converted(Others(), torch.arange(6).view(2, 3))
    assert edge.report.integers.weights == 3


def test_a_bias_that_is_quantized_in_the_graph() -> None:
    limits = (-(2**31), 2**31 - 1, torch.int32)

    def product(model: Product, x: torch.Tensor) -> torch.Tensor:
        integers = q.quantize_per_tensor.default(model.bias, 5e-4, 0, *limits)
        bias = q.dequantize_per_tensor.default(integers, 5e-4, 0, *limits)
        weight = q.dequantize_per_tensor.default(model.integers, 0.01, 0, *WEIGHT)
        return on_grid(nn.functional.linear(on_grid(x), weight, bias))

    edge = converted(Fn(product), torch.randn(4, 16))
    assert dtypes(edge, "FULLY_CONNECTED") == [["int8", "int8", "int32", "int8"]]
    assert edge.report.integers.floats == ()


def test_depthwise_convolution() -> None:
    edge = converted(Depthwise(), torch.randn(1, 6, 8, 8))
    found = dtypes(edge, "DEPTHWISE_CONV_2D")
    assert found == [["int8", "int8", "int32", "int8"]]


def test_integers_that_are_moved() -> None:
    def moved(model: Product, x: torch.Tensor) -> torch.Tensor:
        integers = q.quantize_per_tensor.default(x, STEP, 3, *INT8)
        other = integers.reshape(4, 4, 4).transpose(1, 2)
        return q.dequantize_per_tensor.default(other, STEP, 3, *INT8)

    edge = converted(Fn(moved), torch.randn(4, 16))
    assert edge.report.integers.integers == 1
    assert dtypes(edge, "TRANSPOSE")[0][0] == "int8"


def test_dynamic_quantization_is_left_to_the_kernels() -> None:
    def dynamic(model: Product, x: torch.Tensor) -> torch.Tensor:
        eps = torch.finfo(torch.float32).eps
        scale, zero = q.choose_qparams.tensor(x, -128, 127, eps, torch.int8)
        integers = q.quantize_per_tensor.tensor(x, scale, zero, *INT8)
        y = q.dequantize_per_tensor.tensor(integers, scale, zero, *INT8)
        return nn.functional.linear(y, model.weight(), model.bias)

    edge = converted(Fn(dynamic), torch.randn(4, 16))
    assert dtypes(edge, "FULLY_CONNECTED") == [
        ["float32", "int8", "float32", "float32"]
    ]
    assert edge.report.ops["forward"] == {"FULLY_CONNECTED": 1}
    assert edge.report.integers.dynamic == 1


def test_dynamic_dimensions_are_float_arithmetic_and_said() -> None:
    dims = ({0: torch.export.Dim("batch", min=2, max=4)},)
    x = torch.randn(4, 16)
    edge = tx.to_litert(Product().eval(), (x,), dynamic_shapes=dims)
    found = edge.report.integers
    assert found.integers == 0
    assert set(found.floats) == {"a program with dynamic dimensions"}


def test_integer_weights_alone_are_stored_as_integers() -> None:
    def product(model: Product, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, model.weight(), model.bias)

    edge = converted(Fn(product), torch.randn(4, 16))
    assert edge.report.ops["forward"] == {"DEQUANTIZE": 1, "FULLY_CONNECTED": 1}
    assert edge.report.integers.weights == 1


def test_a_recipe_for_what_is_quantized_already_is_an_error() -> None:
    with pytest.raises(TpuExportError, match=r"TPX-0610.*quantized already"):
        tx.to_litert(Product().eval(), (torch.randn(4, 16),), recipe="dynamic-int8")


def test_large_weights_go_through_the_worker_once(monkeypatch: Any) -> None:
    from tpu_export.converters.litert import job

    runs = []
    once = job.run_module
    monkeypatch.setattr(job, "run_module", lambda *a: runs.append(a) or once(*a))
    model = Product()
    model.integers = torch.randint(-127, 128, (8, 2048), dtype=torch.int8)
    edge = tx.to_litert(model.eval(), (torch.randn(4, 2048) * 0.1,))
    assert len(runs) == 1
    assert edge.report.size < 2 * model.integers.numel()


@pytest.mark.parametrize("target", ["cloud-tpu", "litert"])
def test_exports_are_proven_as_far_as_their_own_rounding_allows(
    target: str, tmp_path: Path
) -> None:
    done = tx.export(
        Product().eval(),
        (torch.randn(4, 16),),
        target=target,
        topologies=(),
        output=tmp_path / "m",
    )
    assert done.parity is not None
    worst = done.parity.worst
    assert done.parity.passed
    assert worst is not None
    assert 1e-3 < worst.threshold < 0.2
    told = [n for n in done.notes if "quantizations of the model: 2 integers" in n]
    assert bool(told) == (target == "litert")


def test_a_wrong_quantized_file_is_still_found() -> None:
    from tpu_export.parity.litert import _lowered
    from tpu_export.parity.metrics import difference
    from tpu_export.parity.models import captures
    from tpu_export.parity.references import references
    from tpu_export.parity.samples import Samples

    model, x = Product().eval(), torch.randn(4, 16)
    signatures = captures(model, (x,), None, None)
    (known,) = references(signatures, _lowered(signatures), Samples(1, None))
    limit = known.limits["output_0"]
    expected = known.run.calls[0].outputs[0]
    for wrong in (expected * 0.8, np.roll(expected, 1), expected + 6 * STEP):
        assert not difference(wrong, expected, limit).passed
