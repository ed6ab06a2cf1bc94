from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
TOL = (1e-4, 1e-5)
BF16 = torch.bfloat16


def r(*shape, dtype=torch.float32):
    return (torch.randn(*shape) * 2 + 1).to(dtype)


def stats(n, dtype=torch.float32):
    return torch.randn(n).to(dtype), (torch.rand(n) + 0.5).to(dtype)


SHAPES = [(4, 3), (4, 3, 5), (2, 3, 5, 4), (2, 3, 5, 4, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(compare, shape, affine):
    weight, bias = (r(3), r(3)) if affine else (None, None)
    x = r(*shape)
    for mean, var, training in (
        (*stats(3), False),
        (None, None, True),
        (*stats(3), True),
    ):
        args = (x, weight, bias, mean, var, training, 0.1, 1e-5)
        compare(aten.batch_norm.default, *args, False, tol=TOL)
    mean, var = stats(3)
    no_training = aten._native_batch_norm_legit_no_training.default
    compare(no_training, x, weight, bias, mean, var, 0.1, 1e-5, tol=TOL)
    no_stats = aten._native_batch_norm_legit.no_stats
    compare(no_stats, x, weight, bias, True, 0.1, 1e-5, tol=TOL)
    for op in (
        aten._native_batch_norm_legit_functional.default,
        aten.native_batch_norm.default,
        aten._native_batch_norm_legit.default,
    ):
        for training in (True, False):
            args = (x, weight, bias, mean, var, training, 0.1, 1e-5)
            compare(op, *args, tol=TOL)


@pytest.mark.parametrize("statistics", [BF16, torch.float32])
def test_batch_norm_bfloat16(compare, statistics):
    x = r(2, 3, 4, 4, dtype=BF16)
    affine = (r(3, dtype=statistics), r(3, dtype=statistics), *stats(3, statistics))
    op = aten.batch_norm.default
    compare(op, x, *affine, False, 0.1, 1e-5, False, tol=(2e-2, 2e-2))


def test_training_statistics_keep_the_dtype(compare):
    x = r(2, 3, 5, dtype=BF16)
    args = (x, r(3, dtype=BF16), r(3, dtype=BF16), *stats(3, BF16), True, 0.1, 1e-5)
    op = aten._native_batch_norm_legit_functional.default
    compare(op, *args, tol=(2e-2, 5e-2))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_instance_norm(compare, shape):
    op = aten.instance_norm.default
    x = r(*shape)
    compare(op, x, None, None, None, None, True, 0.1, 1e-5, False, tol=TOL)
    compare(op, x, r(3), r(3), None, None, True, 0.1, 1e-5, False, tol=TOL)
    compare(op, x, r(3), r(3), *stats(3), False, 0.1, 1e-5, False, tol=TOL)


@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float64])
@pytest.mark.parametrize(
    ("shape", "normalized"),
    [((2, 3, 5), [5]), ((2, 3, 5), [3, 5]), ((4,), [4]), ((0, 5), [5])],
)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_and_rms_norm(compare, shape, normalized, dtype, affine):
    x = r(*shape, dtype=dtype)
    weight = r(*normalized, dtype=dtype) if affine else None
    bias = r(*normalized, dtype=dtype) if affine else None
    tol = (2e-2, 2e-2) if dtype == BF16 else TOL
    compare(aten.layer_norm.default, x, normalized, weight, bias, 1e-5, tol=tol)
    compare(aten.native_layer_norm.default, x, normalized, weight, bias, 1e-5, tol=tol)
    for eps in (None, 1e-3):
        compare(aten.rms_norm.default, x, normalized, weight, eps, tol=tol)


@pytest.mark.parametrize("eps", [None, 1e-3])
def test_fused_rms_norm(compare, eps):
    compare(aten._fused_rms_norm.default, r(2, 3, 4), [4], r(4), eps, tol=TOL)


def test_rms_norm_of_tiny_values_takes_the_default_eps(compare):
    compare(aten.rms_norm.default, r(2, 3) * 1e-4, [3], tol=TOL)


@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 5, 4)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(compare, shape, affine, dtype):
    x = r(*shape, dtype=dtype)
    weight, bias = (r(6, dtype=dtype), r(6, dtype=dtype)) if affine else (None, None)
    tol = (2e-2, 2e-2) if dtype == BF16 else TOL
    compare(aten.group_norm.default, x, 3, weight, bias, 1e-5, tol=tol)
    plane = x[0, 0].numel()
    args = (x, weight, bias, 2, 6, plane, 2, 1e-5)
    compare(aten.native_group_norm.default, *args, tol=tol)
