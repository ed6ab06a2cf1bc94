from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")

X = torch.randn(3, 4, 5)
NANS = torch.tensor([[1.0, NAN, 3.0], [2.0, 5.0, 5.0]])
NAMED = [
    "sum.dim_IntList",
    "mean.dim",
    "amax.default",
    "amin.default",
    "logsumexp.default",
]


@pytest.mark.parametrize("dim", [[0], [-1, 0], [], [1]])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("x", [X, X.bfloat16()])
@pytest.mark.parametrize("name", NAMED)
def test_dims(compare, name, x, dim, keepdim):
    packet, overload = name.split(".")
    if not dim and packet == "logsumexp":
        dim = [0, 1, 2]
    # torch rounds logsumexp to bfloat16 between its steps; near zero that is 2^-8 of a
    # larger intermediate, not of the result.
    loose = packet == "logsumexp" and x.dtype == torch.bfloat16
    op = getattr(getattr(aten, packet), overload)
    compare(op, x, dim, keepdim, tol=(0.016, 0.016) if loose else None)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.int64])
def test_narrow_sums(compare, dtype):
    compare(aten.sum.default, (torch.ones(300) * 3).to(dtype))
    compare(aten.prod.default, (torch.ones(9) * 3).to(dtype))


@pytest.mark.parametrize("x", [X, NANS, torch.tensor([1, 3, 3, 0])])
@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("op", [aten.max.dim, aten.min.dim])
def test_extremes(compare, op, x, dim):
    compare(op, x, dim)


@pytest.mark.parametrize("x", [X, NANS, torch.tensor([1, 3, 3, 0])])
@pytest.mark.parametrize("args", [(), (0,), (-1, True)])
@pytest.mark.parametrize("op", [aten.argmax.default, aten.argmin.default])
def test_places(compare, op, x, args):
    compare(op, x, *args)


@pytest.mark.parametrize("correction", [None, 0, 1, 2])
@pytest.mark.parametrize("op", [aten.var.correction, aten.std_mean.correction])
def test_moments(compare, op, correction):
    compare(op, X, [1], correction=correction, keepdim=True)


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.any.dim, (X > 1, 1)),
        (aten.all.dim, (X > -1, 1, True)),
        (aten.any.default, (X,)),
        (aten.count_nonzero.default, (X > 0,)),
        (aten.nansum.default, (NANS, [1])),
        (aten.nanmean.default, (NANS, [1])),
        (aten.aminmax.default, (X,)),
        (aten.var.dim, (X, [0], False)),
    ],
)
def test_more(compare, op, args):
    compare(op, *args)
