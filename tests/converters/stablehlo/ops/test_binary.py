from __future__ import annotations

import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

X = torch.tensor([-7.0, -2.5, -1.0, 0.5, 2.5, 7.0])
Y = torch.tensor([2.0, -2.0, 3.0, -0.75, 1.5, -4.0])
N = torch.tensor([-7, -4, -1, 3, 5, 8])
J = torch.tensor([2, -3, 4, -2, 5, 3], dtype=torch.int32)
ZERO_D = torch.tensor(2.5, dtype=torch.float64)
PAIRS = [
    (X, Y),
    (N, J),
    (N, Y),
    (X, ZERO_D),
    (N, ZERO_D),
    (X.bfloat16(), Y),
    (X[:, None], Y),
]
OPS = [
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.floor_divide.default,
    aten.remainder.Tensor,
    aten.fmod.Tensor,
    aten.maximum.default,
    aten.minimum.default,
    aten.atan2.default,
]


@pytest.mark.parametrize(("x", "y"), PAIRS)
@pytest.mark.parametrize("op", OPS)
def test_promotion(compare, op, x, y):
    compare(op, x, y)


@pytest.mark.parametrize("x", [X, N, X.bfloat16(), X > 0, N.to(torch.uint8)])
@pytest.mark.parametrize("y", [2, 3, 0.1, 0.5])
@pytest.mark.parametrize(
    "op",
    [
        aten.add.Scalar,
        aten.mul.Scalar,
        aten.div.Scalar,
        aten.remainder.Scalar,
        aten.floor_divide.Scalar,
        aten.pow.Tensor_Scalar,
    ],
)
def test_scalar(compare, op, x, y):
    compare(op, x, y)


@pytest.mark.parametrize("alpha", [1, 2, -3])
@pytest.mark.parametrize("op", [aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor])
@pytest.mark.parametrize(("x", "y"), [(X, Y), (N, J), (X.bfloat16(), Y.bfloat16())])
def test_alpha(compare, op, x, y, alpha):
    compare(op, x, y, alpha=alpha)


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
@pytest.mark.parametrize(("x", "y"), PAIRS)
def test_rounding_mode(compare, x, y, mode):
    compare(aten.div.Tensor_mode, x, y, rounding_mode=mode)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, -1, -2, 0.5, -0.5, 1.7])
def test_power(compare, exponent):
    compare(aten.pow.Tensor_Scalar, X.abs(), exponent)


@pytest.mark.parametrize(
    ("op", "x", "y"),
    [
        (aten.pow.Tensor_Tensor, X.abs(), Y),
        (aten.pow.Tensor_Tensor, N, J.abs()),
        (aten.pow.Scalar, 2, Y),
        (aten.fmax.default, torch.tensor([1, NAN, NAN]), torch.tensor([NAN, 2, NAN])),
        (aten.maximum.default, torch.tensor([1, NAN]), torch.tensor([NAN, 2])),
        (aten.xlogy.Tensor, torch.tensor([0, 0, 2.0]), torch.tensor([NAN, 0, 3.0])),
        (aten.heaviside.default, X, Y),
        (aten.gcd.default, N, J),
        (aten.hypot.default, X, Y),
        (aten.copysign.Tensor, X, Y),
        (aten.logaddexp.default, X, Y),
        (aten.nextafter.default, X, Y),
        (aten.floor_divide.default, X, torch.zeros(6)),
    ],
)
def test_more(compare, op, x, y):
    compare(op, x, y)


# torch's kernels round the few elements beyond whole vectors in other places.
LANES = 512
# The overloads for tensors that take a Python number too.
NUMBERS = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("y", [0.1, 1 / 3, -0.7, 257, torch.tensor(1 / 3)])
@pytest.mark.parametrize(
    "op",
    [
        aten.add.Tensor,
        aten.sub.Tensor,
        aten.rsub.Tensor,
        aten.mul.Tensor,
        aten.div.Tensor,
        aten.floor_divide.default,
        aten.remainder.Tensor,
        aten.fmod.Tensor,
    ],
)
def test_scalars_and_half_types(compare, op, y, dtype):
    """Products and quotients take the scalar in float32, the others in the half type."""
    x = torch.randn(LANES).to(dtype)
    if op not in NUMBERS:
        y = torch.as_tensor(y)
    compare(op, x, y, tol=(0, 0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("op", [aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor])
def test_alpha_in_the_half_type(compare, op, dtype):
    x, y = torch.randn(2, LANES).to(dtype)
    compare(op, x, y, alpha=0.3, tol=(0, 0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_quotient_is_rounded_before_it_is_cut(compare, dtype):
    x, y = (torch.randint(1, 100, (2, 4 * LANES)) / 10).to(dtype)
    compare(aten.div.Tensor_mode, x, y, rounding_mode="trunc", tol=(0, 0))
    compare(aten.div.Tensor_mode, x, 0.1, rounding_mode="trunc", tol=(0, 0))


@pytest.mark.parametrize("y", [1.0, -1.0, 2.5, -3.0, INF, -INF])
def test_sign_of_zero_quotients(compiled_rule, y):
    x = torch.tensor([0.0, -0.0, 0.5, -0.5])
    got = compiled_rule(find_rule(aten.floor_divide.default, "xla"), x, y)
    torch.testing.assert_close(got.signbit(), torch.floor_divide(x, y).signbit())


@pytest.mark.parametrize("op", [aten.floor_divide.default, aten.remainder.Tensor])
def test_divisor_out_of_range(compare, op):
    x = torch.tensor([1, 100, -7], dtype=torch.int32)
    compare(op, x, torch.tensor(2**31))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_multiples_wrap(compare, dtype):
    largest = torch.iinfo(dtype).max
    x = torch.tensor([largest, largest - 1, 100, 7], dtype=dtype)
    compare(aten.lcm.default, x[:, None], x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_divisors_of_the_lowest_integer(compare, dtype):
    # Where torch ends with -1 and takes a rest by it, its process dies: not these pairs.
    lowest = torch.iinfo(dtype).min
    x = torch.tensor([0, 0, -4, 6, 12, lowest, lowest], dtype=dtype)
    y = torch.tensor([0, 5, 6, -4, 18, 0, 4], dtype=dtype)
    compare(aten.gcd.default, x, y)
    compare(aten.gcd.default, y, x)
