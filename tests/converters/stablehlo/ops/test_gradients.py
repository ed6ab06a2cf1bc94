"""Backward ops next to torch's own."""

from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
TOL = (1e-4, 1e-4)
NO_BIAS = [True, True, False]


def r(*shape):
    return torch.randn(*shape)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 2), (2, 1, 1, 4)],
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("mask", [[True, True, True], NO_BIAS])
def test_convolution(compare, stride, padding, dilation, groups, transposed, mask):
    x = r(2, 4, 9, 8)
    shape = (4, 8 // groups, 3, 3) if transposed else (8, 4 // groups, 3, 3)
    weight = r(*shape)
    options = ([stride] * 2, [padding] * 2, [dilation] * 2, transposed, [0, 0], groups)
    grad = torch.randn_like(aten.convolution.default(x, weight, None, *options))
    bias = [8] if mask[2] else None
    args = (grad, x, weight, bias, *options, mask)
    if mask[2]:
        compare(aten.convolution_backward.default, *args, tol=TOL)
        return
    compare(aten.convolution_backward.default, *args[:-1], [True, True, True], tol=TOL)


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("divisor", [None, 3])
def test_avg_pool2d(compare, count_include_pad, divisor):
    x = r(2, 3, 9, 8)
    window = ([3, 2], [2, 2], [1, 1], True, count_include_pad, divisor)
    grad = torch.randn_like(aten.avg_pool2d.default(x, *window))
    compare(aten.avg_pool2d_backward.default, grad, x, *window, tol=TOL)


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (5, 2)])
def test_adaptive_avg_pool2d(compare, size):
    op = aten._adaptive_avg_pool2d_backward.default
    compare(op, r(2, 3, *size), r(2, 3, 9, 8), tol=TOL)


@pytest.mark.parametrize("padding", [-1, 2])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding(compare, padding, by_frequency):
    grad, rows = r(3, 4, 5), torch.randint(0, 6, (3, 4))
    op = aten.embedding_dense_backward.default
    compare(op, grad, rows, 7, padding, by_frequency, tol=TOL)


X = torch.randn(2, 4, 6, 6)
PLACES = aten.max_pool2d_with_indices(X, [2, 2], [2, 2])[1]
STATISTICS = torch.randn(2, 4, 6, 1), torch.rand(2, 4, 6, 1) + 0.5
OF_GROUPS = torch.randn(2, 2), torch.rand(2, 2) + 0.5
ALL = [True, True, True]
DECOMPOSED = {
    "max_pool2d": (
        lambda g: aten.max_pool2d_with_indices_backward(
            g, X, [2, 2], [2, 2], [0, 0], [1, 1], False, PLACES
        ),
        r(2, 4, 3, 3),
    ),
    "group_norm": (
        lambda g: aten.native_group_norm_backward(
            g,
            X,
            OF_GROUPS[0],
            OF_GROUPS[1],
            torch.ones(4),
            2,
            4,
            36,
            2,
            ALL,
        )[:1],
        r(2, 4, 6, 6),
    ),
    "layer_norm": (
        lambda g: aten.native_layer_norm_backward(
            g, X, [6], *STATISTICS, torch.ones(6), torch.ones(6), ALL
        ),
        r(2, 4, 6, 6),
    ),
}


def test_atan2_with_out(check_module):
    class Out(torch.nn.Module):
        def forward(self, y, x, out):
            return aten.atan2.out(y, x, out=out)

    check_module(Out(), (r(3), r(3), torch.zeros(3)))


@pytest.mark.parametrize("name", DECOMPOSED)
def test_those_that_torch_decomposes(check_module, name):
    call, grad = DECOMPOSED[name]

    class Backward(torch.nn.Module):
        def forward(self, grad):
            return call(grad)

    check_module(Backward(), (grad,), tol=TOL)
