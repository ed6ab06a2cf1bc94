from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
REDUCTIONS = pytest.mark.parametrize("reduction", [0, 1, 2])
TOL = (1e-5, 1e-5)


def r(*shape):
    return torch.randn(*shape)


@REDUCTIONS
@pytest.mark.parametrize(
    ("op", "extra"),
    [
        (aten.mse_loss.default, ()),
        (aten.l1_loss.default, ()),
        (aten.smooth_l1_loss.default, ()),
        (aten.smooth_l1_loss.default, (0.3,)),
        (aten.smooth_l1_loss.default, (0.0,)),
        (aten.huber_loss.default, (0.7,)),
    ],
)
def test_elementwise(compare, op, extra, reduction):
    compare(op, r(3, 4), r(3, 4), reduction, *extra, tol=TOL)
    half = (r(3, 4).bfloat16(), r(3, 4).bfloat16())
    compare(op, *half, reduction, *extra, tol=(2e-2, 2e-2))


@REDUCTIONS
@pytest.mark.parametrize("log_target", [True, False])
def test_kl_div(compare, reduction, log_target):
    target = r(3, 4).relu()
    args = (r(3, 4), target, reduction)
    compare(aten.kl_div.default, *args, log_target=log_target, tol=TOL)


@REDUCTIONS
@pytest.mark.parametrize("weight", [None, torch.rand(4)])
def test_binary_cross_entropy(compare, reduction, weight):
    x = torch.tensor([[0.0, 1.0, 0.3, 0.9], [0.5, 0.2, 0.0, 1.0]])
    y = torch.tensor([[0.0, 0.0, 1.0, 0.4], [1.0, 0.2, 1.0, 1.0]])
    compare(aten.binary_cross_entropy.default, x, y, weight, reduction, tol=TOL)
    op = aten.binary_cross_entropy_with_logits.default
    for positive in (None, torch.rand(4)):
        compare(op, r(2, 4) * 20, y, weight, positive, reduction, tol=TOL)


TARGETS = [
    ((4, 5), torch.tensor([0, 4, -100, 2])),
    ((5,), torch.tensor(3)),
    ((2, 5, 3), torch.tensor([[0, 4, 1], [-100, 2, 2]])),
    ((2, 5, 2, 2), torch.randint(0, 5, (2, 2, 2))),
    ((2, 5), torch.tensor([-100, -100])),
]


@REDUCTIONS
@pytest.mark.parametrize(("shape", "target"), TARGETS)
@pytest.mark.parametrize("weight", [None, torch.rand(5)])
def test_class_targets(compare, shape, target, weight, reduction):
    x = r(*shape)
    for smoothing in (0.0, 0.2):
        args = (x, target, weight, reduction, -100, smoothing)
        compare(aten.cross_entropy_loss.default, *args, tol=TOL)
    compare(aten.nll_loss_nd.default, x, target, weight, reduction, tol=TOL)


@REDUCTIONS
def test_nll_forward(compare, reduction):
    x, target, weight = r(4, 5), TARGETS[0][1], torch.rand(5)
    compare(aten.nll_loss_forward.default, x, target, weight, reduction, -100, tol=TOL)
    x, target = r(2, 5, 2, 2), TARGETS[3][1]
    compare(aten.nll_loss2d_forward.default, x, target, weight, reduction, 2, tol=TOL)


@REDUCTIONS
@pytest.mark.parametrize("shape", [(4, 5), (2, 5, 3)])
def test_probability_targets(compare, shape, reduction):
    target = torch.rand(*shape)
    for weight in (None, torch.rand(5)):
        args = (r(*shape), target, weight, reduction, -100, 0.1)
        compare(aten.cross_entropy_loss.default, *args, tol=TOL)


def test_an_ignored_class_may_lie_inside(compare):
    args = (r(4, 5), torch.tensor([0, 4, 1, 2]), None, 1, 4)
    compare(aten.cross_entropy_loss.default, *args, tol=TOL)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_an_odd_weight_of_an_ignored_class_counts_for_nothing(compare, reduction):
    weight = torch.tensor([1.0, torch.inf, 2.0, torch.nan])
    target = torch.tensor([0, 1, 2, 1])
    x = torch.randn(4, 4).log_softmax(-1)
    compare(aten.nll_loss.default, x, target, weight, reduction, 1)
