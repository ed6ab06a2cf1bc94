from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
X = torch.tensor([0.0, 0.3, 0.7, 1.5, 2.25, 9.0, INF])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(compare, dtype):
    base = torch.tensor([0, 1, 2, 3, 7, 100, 250]).to(dtype)
    exponent = torch.tensor([0, 1, 2, 5, 33, 63, 64, 65, 100, 127]).to(dtype)
    compare(aten.pow.Tensor_Tensor, base[:, None], exponent)
    for number in (0, 1, 5, 64, 65, 127):
        compare(aten.pow.Tensor_Scalar, base, number)
    for number in (0, 1, 2, 3, 6, 7, -2, -3):
        compare(aten.pow.Scalar, number, exponent)


def test_long_exponents(compare):
    base = torch.tensor([2, 3, -3, 7])
    exponent = torch.tensor([2**40 + 1, 2**62, 2**63 - 1, 300])
    compare(aten.pow.Tensor_Tensor, base[:, None], exponent)
    compare(aten.pow.Tensor_Scalar, base, 2**31 + 5)
    compare(aten.pow.Tensor_Scalar, base.to(torch.int16), 300)


def test_negative_exponents(compare):
    base = torch.tensor([1, -1, 2, -3])
    compare(aten.pow.Tensor_Tensor, base[:, None], torch.tensor([-1, -2, -63]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("exponent", [0.1, 1 / 3, -0.7, 0.5, -0.5, 2.5, NAN, INF])
def test_number_in_the_dtype(compare, exponent, dtype):
    """torch rounds the number to a half type first."""
    x = torch.cat([X, torch.tensor([-INF, -0.0, 1e30])]).to(dtype)
    compare(aten.pow.Tensor_Scalar, x, exponent)
    if exponent == exponent:
        compare(aten.pow.Scalar, abs(exponent), X.to(dtype))


@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3.0, -1, 0.3])
def test_float_power_takes_roots(compare, exponent):
    compare(aten.float_power.Tensor_Scalar, torch.tensor([-INF, -0.0, 4.0]), exponent)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
def test_ldexp_in_two_steps(compare, dtype):
    x = torch.tensor([0, 1, 3]).to(dtype)[:, None]
    for exponent in (torch.tensor([0, 5, -3]), torch.tensor([20.0, -20.0])):
        compare(aten.ldexp.Tensor, x, exponent.to(dtype))
