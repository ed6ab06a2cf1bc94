from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


def r(*shape):
    return torch.randn(*shape)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cosine_similarity(compare, dim):
    compare(aten.cosine_similarity.default, r(3, 4), r(3, 4), dim)
    compare(aten.cosine_similarity.default, r(3, 4), torch.zeros(3, 4), dim)
    compare(aten.cosine_similarity.default, r(3, 4), r(1, 4), dim, 1.0)


def test_cosine_similarity_of_scalars(compare):
    compare(aten.cosine_similarity.default, r(()), r(()), 0)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, INF])
def test_pairwise_distance(compare, p):
    compare(aten.pairwise_distance.default, r(3, 4), r(3, 4), p)
    compare(aten.pairwise_distance.default, r(2, 3, 4), r(4), p, 1e-6, True)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, INF])
@pytest.mark.parametrize(
    "shapes", [((3, 4), (5, 4)), ((2, 3, 4), (1, 5, 4)), ((30, 4), (5, 4))]
)
def test_cdist(compare, p, shapes):
    x, y = (r(*shape) for shape in shapes)
    compare(aten.cdist.default, x, y, p, tol=(1e-4, 1e-4))
    compare(aten._cdist_forward.default, x, y, p, 2, tol=(1e-4, 1e-4))


def test_counts_of_nan(compare):
    x = torch.tensor([[1.0, 2.0], [NAN, 2.0], [1.0, 2.0]])
    compare(aten.cdist.default, x, x[1:], 0.0)
    compare(aten.pdist.default, x, 0.0)


def test_half_epsilon(compare):
    """1e-8 is 0 in float16: a row of zeros gives NaN, as in torch."""
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float16)
    compare(aten.cosine_similarity.default, x, x.flip(1), 1)
