from __future__ import annotations

import jax
import pytest
import torch

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
X = torch.randn(4, 5, 6)
I = torch.tensor([[0, -1], [2, 1]])  # noqa: E741
J = torch.tensor([3, -2])
CASES = [
    (aten.index.Tensor, X, [I]),
    (aten.index.Tensor, X, [None, I]),
    (aten.index.Tensor, X, [I, None, J]),
    (aten.index.Tensor, X, [I, J]),
    (aten.index.Tensor, X, [torch.tensor([True, False, True, True])]),
    (aten.index_select.default, X, 1, J.abs()),
    (aten.gather.default, X, 1, torch.randint(5, (3, 9, 2))),
    (aten.gather.default, X, -1, torch.randint(6, (4, 5, 2))),
    (aten.take.default, X, I),
    (aten.take_along_dim.default, X, torch.randint(5, (4, 2, 6)), 1),
    (aten.masked_select.default, X, X > 0),
    (aten.nonzero.default, X > 0),
    (aten.bucketize.Tensor, X, torch.tensor([-1.0, 0.0, 1.0])),
    (aten.searchsorted.Tensor, torch.arange(5.0).expand(4, 5), torch.rand(4, 3) * 6),
]


@pytest.mark.parametrize("target", ["xla", "litert"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
def test_indexing(compare, case, target):
    compare(*case, target=target)


@pytest.mark.parametrize("size", [0, 2, 9])
def test_nonzero_static(compare, size):
    op = aten.nonzero_static.default
    compare(op, X[0, :2, :3] > 0, size=size)
    compare(op, torch.tensor([0, 3, 4, 0]), size=size, fill_value=7)
    compare(op, torch.tensor(3), size=size)


def test_traced_masks_are_refused():
    rule = find_rule(aten.index.Tensor, "xla")
    with pytest.raises(UnsupportedOptionError):
        jax.eval_shape(
            lambda x, m: rule(x, [m]), jax.numpy.zeros(3), jax.numpy.zeros(3, bool)
        )


def test_take_along_dim_counts_from_the_end(compare):
    x = torch.randn(4, 5)
    op = aten.take_along_dim.default
    compare(op, x, torch.tensor([[-1, 0], [2, -5], [1, 1], [0, -2]]), 1)
    compare(op, x, torch.tensor([1, 3, 19]), None)


@pytest.mark.parametrize("target", ["xla", "litert"])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("missing", range(8))
def test_searchsorted_with_nan_at_the_end(compare, missing, right, target):
    nan, kwargs = float("nan"), {"right": right, "target": target}
    edges = torch.arange(7.0)
    edges[7 - missing :] = nan
    values = torch.tensor([-1.0, 0, 0.5, 1, 2.5, 4, 6, 9, nan])
    compare(aten.bucketize.Tensor, values, edges, **kwargs)
    compare(aten.searchsorted.Scalar, edges, 2.5, **kwargs)
    edges = torch.stack([edges, torch.arange(7.0)])
    compare(aten.searchsorted.Tensor, edges, torch.stack([values] * 2), **kwargs)
