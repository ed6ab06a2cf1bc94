from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.registry import find_rule

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchao.quantization import (
        quant_primitives as _primitives,
    )  # registers torchao's ops

assert _primitives
torchao = torch.ops.torchao
X = torch.randn(3, 8, 4) * 3
X[0, 0] = torch.tensor([0.5, 1.5, -2.5, 1000.0])
BLOCKS = [
    (3, 8, 4),
    (1, 8, 4),
    (3, 1, 4),
    (1, 1, 4),
    (3, 8, 2),
    (3, 2, 4),
    (1, 4, 2),
    (1, 1, 1),
]
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
GRIDS: list[tuple[Any, ...]] = [
    (torch.int8, -128, 127),
    (torch.int8, -8, 7),
    (torch.int8, None, None),
    (torch.uint8, 0, 255),
    (torch.uint4, None, None),
    (torch.int16, -30000, 30000),
    (torch.int32, -1000, 1000),
]


def parameters(blocks: tuple[int, ...], zero: torch.dtype) -> tuple[Tensor, Tensor]:
    shape = [n // b for n, b in zip(X.shape, blocks, strict=True)]
    scale = torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.01
    return scale, (torch.arange(scale.numel()).reshape(shape) % 7).to(zero)


@pytest.mark.parametrize("blocks", BLOCKS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS)
def test_blocks_of_each_shape(
    compare: Callable[..., None], blocks: tuple[int, ...], dtype: torch.dtype
) -> None:
    scale, zero = parameters(blocks, torch.int8)
    for step in (scale, scale.to(dtype), scale.reshape(-1)):
        rest = (blocks, step, zero, torch.int8, -128, 127)
        x = X.to(dtype)
        compare(torchao.quantize_affine.default, x, *rest, tol=(0, 0))
        n = torchao.quantize_affine.default(x, *rest)
        compare(torchao.dequantize_affine.default, n, *rest, dtype, tol=(0, 0))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("zero", [torch.int8, torch.int32, torch.int64, torch.float32])
def test_levels_of_each_kind(
    compare: Callable[..., None], grid: tuple[Any, ...], zero: torch.dtype
) -> None:
    for dtype in FLOATS:
        blocks = (1, 8, 2)
        rest = (blocks, *parameters(blocks, zero), *grid)
        compare(torchao.quantize_affine.default, X.to(dtype), *rest, tol=(0, 0))
        n = torchao.quantize_affine.default(X.to(dtype), *rest)
        compare(torchao.dequantize_affine.default, n, *rest, dtype, tol=(0, 0))


def test_no_zero_point(compare: Callable[..., None]) -> None:
    n = torch.randint(-8, 8, (4, 6), dtype=torch.int8)
    rest = ((1, 3), torch.rand(4, 2), None, torch.int8, -8, 7)
    compare(torchao.dequantize_affine.default, n, *rest)
    compare(torchao.dequantize_affine.default, n, *rest, torch.bfloat16, tol=(0, 0))


def test_what_is_no_number_is_the_level_that_torch_has(
    compare: Callable[..., None],
) -> None:
    x = torch.tensor([[torch.nan, torch.inf, -torch.inf, 1e38]])
    one = (torch.ones(1), torch.zeros(1, dtype=torch.int8))
    compare(torchao.quantize_affine.default, x, (1, 4), *one, torch.int8, -128, 127)


@pytest.mark.parametrize("float8", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize(
    "shape", [(), (1,), (1, 1, 1), (3, 1, 1), (3, 8, 4), (3, 4, 2)]
)
def test_float8(
    compiled_rule: Callable[..., Any], float8: torch.dtype, shape: tuple[int, ...]
) -> None:
    quantize = torchao.quantize_affine_float8_non_decomposed.default
    dequantize = torchao.dequantize_affine_float8_non_decomposed.default
    scale, kind = torch.rand(shape) + 0.1, DTYPES[float8]

    def there(x: Any, s: Any) -> Any:
        return find_rule(quantize, "xla")(x, s, float8).astype("float32")  # type: ignore[misc]

    def back(x: Any, s: Any, dtype: torch.dtype) -> Any:
        return find_rule(dequantize, "xla")(x.astype(kind), s, dtype)  # type: ignore[misc]

    for dtype in FLOATS:
        n = quantize(X.to(dtype), scale, float8)
        assert torch.equal(compiled_rule(there, X.to(dtype), scale), n.float())
        got = compiled_rule(back, n.float(), scale, dtype)
        assert torch.equal(got, dequantize(n, scale, dtype))


class Parameters(nn.Module):
    """Scale and zero point from the values, and the values by them, there and back."""

    def __init__(self, mapping: str, blocks: tuple[int, ...], *options: Any) -> None:
        super().__init__()
        self.mapping, self.blocks, self.options = mapping, blocks, options

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        blocks = [b or n for b, n in zip(self.blocks, x.shape, strict=True)]
        grid = (torch.int8, -128, 127)
        scale, zero = torchao.choose_qparams_affine(
            x, self.mapping, blocks, *grid, *self.options
        )
        n = torchao.quantize_affine(x, blocks, scale, zero, *grid)
        y = torchao.dequantize_affine(
            n, blocks, scale, zero, *grid, output_dtype=x.dtype
        )
        return scale, zero, n, y


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "blocks", [(0, 0), (1, 0), (0, 1), (1, 4), (3, 2), (1, 1)], ids=str
)
@pytest.mark.parametrize(
    "mapping", ["SYMMETRIC", "SYMMETRIC_NO_CLIPPING_ERR", "ASYMMETRIC"]
)
def test_parameters_from_values(
    check_module: Callable[..., Any],
    mapping: str,
    blocks: tuple[int, ...],
    dtype: torch.dtype,
) -> None:
    x = (torch.randn(6, 8) * 3).to(dtype)
    x[2] = 0
    each: tuple[Any, ...] = ()
    if blocks == (1, 1):  # torch.amin over no axis is one over all
        blocks, each = (0, 0), (None, torch.float32, torch.int8, True)
    check_module(Parameters(mapping, blocks, *each), (x,))


def test_a_dynamic_batch(check_module: Callable[..., Any]) -> None:
    for mapping, blocks in (("SYMMETRIC", (1, 0)), ("ASYMMETRIC", (0, 0))):
        model = Parameters(mapping, blocks)
        more = [(torch.randn(n, 8),) for n in (2, 7)]
        dim = {0: torch.export.Dim("batch", min=2, max=16)}
        check_module(model, (torch.randn(4, 8),), more=more, dynamic_shapes=(dim,))


class Scale8(nn.Module):
    def __init__(self, *options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return torchao.choose_scale_float8(x, *self.options)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "options",
    [
        ((6, 8),),
        ((1, 8), torch.float8_e5m2),
        ((2, 4), torch.float8_e4m3fn, torch.float8_e8m0fnu),
        ((1, 8), torch.float8_e4m3fn, torch.float32, 0.5, 2.0),
    ],
    ids=str,
)
def test_scales_of_float8(check_module: Callable[..., Any], options: Any) -> None:
    for dtype in FLOATS:
        check_module(Scale8(*options), ((torch.randn(6, 8) * 3).to(dtype),))


@pytest.mark.parametrize("left", [torch.uint8, torch.int8])
def test_products_of_integers(compare: Callable[..., None], left: torch.dtype) -> None:
    """Int8Tensor multiplies uint8 with int8 where the host has no product of signed ones."""
    info = torch.iinfo(left)
    for n, k, m in ((18, 16, 8), (33, 40, 24), (18, 2056, 8)):
        x = torch.randint(info.min, info.max + 1, (n, k), dtype=left)
        weight = torch.randint(-128, 128, (m, k), dtype=torch.int8)
        x[0], weight[0] = info.max, -128
        compare(torch.ops.aten._int_mm.default, x, weight.t())
        compare(torch.ops.aten._int_mm.default, x, weight.t(), target="litert")
