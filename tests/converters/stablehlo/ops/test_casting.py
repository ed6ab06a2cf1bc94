from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]
X = torch.tensor([-2.7, -1.0, 0.0, 0.5, 2.9, 120.0])


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES[:-1])
def test_casts(compare, source, target):
    compare(aten._to_copy.default, X.to(source), dtype=target)


BEYOND = [
    300.0,
    3000000123.0,
    -300.7,
    7e4,
    3e9,
    -3e9,
    1e10,
    -1e10,
    1e19,
    -1e19,
    2.0**31,
    -(2.0**31),
]


@pytest.mark.parametrize(
    "target", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
)
@pytest.mark.parametrize(
    "source", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_what_an_integer_cannot_hold(compare, source, target):
    x = torch.tensor([*BEYOND, torch.inf, -torch.inf, torch.nan]).to(source)
    compare(aten._to_copy.default, x, dtype=target)


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (torch.randn(3, 4), torch.int32),
        (torch.randn(3, 4), torch.uint8),
        (torch.arange(8, dtype=torch.uint8), torch.int32),
    ],
)
def test_view_dtype(compare, x, dtype):
    compare(aten.view.dtype, x, dtype)


@pytest.mark.parametrize("name", ["conj_physical", "angle", "view_as_real", "abs"])
def test_complex(compare, name):
    compare(getattr(aten, name).default, torch.randn(5, dtype=torch.complex64))


def test_polar(compare):
    compare(aten.polar.default, torch.rand(5), torch.randn(5))
