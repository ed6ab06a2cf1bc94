from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

q = torch.ops.quantized_decomposed
X = torch.randn(3, 8, 4) * 3
INT8 = (-128, 127, torch.int8)


@pytest.mark.parametrize("zero", [0, 3, -7])
@pytest.mark.parametrize(
    ("low", "high", "dtype"), [INT8, (0, 255, torch.uint8), (-8, 7, torch.int8)]
)
def test_per_tensor(compare, zero, low, high, dtype):
    rest = (0.05, abs(zero) if low == 0 else zero, low, high, dtype)
    compare(q.quantize_per_tensor.default, X, *rest)
    compare(
        q.dequantize_per_tensor.default, q.quantize_per_tensor.default(X, *rest), *rest
    )
    tensors = (torch.tensor(rest[0]), torch.tensor(rest[1]), *rest[2:])
    compare(q.quantize_per_tensor.tensor, X, *tensors)
    y = q.quantize_per_tensor.tensor(X, *tensors)
    compare(q.dequantize_per_tensor.tensor, y, *tensors)


def test_rounds_half_to_even(compare):
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1000.0])
    compare(q.quantize_per_tensor.default, x, 1.0, 1, *INT8)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_per_channel(compare, axis):
    n = X.shape[axis]
    scales, zeros = torch.rand(n) + 0.01, torch.randint(-5, 5, (n,))
    compare(q.quantize_per_channel.default, X, scales, zeros, axis, *INT8)
    y = q.quantize_per_channel.default(X, scales, zeros, axis, *INT8)
    compare(q.dequantize_per_channel.default, y, scales, zeros, axis, *INT8)
    compare(q.dequantize_per_channel.default, y, scales, None, axis, *INT8)


def test_per_token(compare):
    scales, zeros = torch.rand(3, 8, 1) + 0.01, torch.randint(-5, 5, (3, 8, 1))
    compare(q.quantize_per_token.default, X, scales, zeros, *INT8)
    y = q.quantize_per_token.default(X, scales, zeros, *INT8)
    compare(q.dequantize_per_token.default, y, scales, zeros, *INT8, torch.float32)


def test_groups_of_a_channel(compare):
    w = torch.randn(3, 16)
    scales, zeros = torch.rand(3, 4) + 0.01, torch.randint(-5, 5, (3, 4))
    compare(q.quantize_per_channel_group.default, w, scales, zeros, *INT8, 4)
    y = q.quantize_per_channel_group.default(w, scales, zeros, *INT8, 4)
    for zero in (zeros, None):
        rest = (scales, zero, *INT8, 4, torch.float32)
        compare(q.dequantize_per_channel_group.default, y, *rest)
    rest = (scales[:, :1], None, *INT8, 128, torch.float16)
    compare(q.dequantize_per_channel_group.default, y, *rest)


def test_a_scale_that_is_a_number_is_inverted_in_double(compare):
    scale = 0.03
    halves = torch.tensor([(n + 0.5) * scale for n in range(-120, 120)])
    compare(q.quantize_per_tensor.default, halves, scale, 0, *INT8)


@pytest.mark.parametrize("x", [X, X.abs(), -X, X.half(), torch.zeros(2, 3)])
@pytest.mark.parametrize("name", ["choose_qparams", "choose_qparams_symmetric"])
def test_parameters_from_values(compare, x, name):
    op = getattr(q, name).tensor
    eps = torch.finfo(torch.float32).eps
    for low, high, dtype in (INT8, (0, 255, torch.uint8)):
        compare(op, x, low, high, eps, dtype)


@pytest.mark.parametrize("x", [X, X.abs() + 1, -X.abs(), torch.zeros(2, 3)])
def test_parameters_of_each_token(compare, x):
    compare(q.choose_qparams_per_token_asymmetric.default, x, torch.int8)
    rule = find_rule(q.choose_qparams_per_token.default, "xla")
    with jax.enable_x64(True):
        ours = rule(jnp.asarray(x.numpy()), torch.int8)
    theirs = q.choose_qparams_per_token.default(x, torch.int8)
    dtypes = ("float64", "int64")  # torch's fake tensors have these, its kernel float32
    for mine, want, dtype in zip(ours, theirs, dtypes, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_array_equal(mine, want)
