from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("p", [0, 1, 2, 3, INF, -INF])
@pytest.mark.parametrize("dim", [None, [1], [0, 1]])
def test_vector_norm(compare, p, dim):
    compare(aten.linalg_vector_norm.default, torch.randn(3, 4), p, dim)


def test_norm(compare):
    compare(aten.norm.ScalarOpt_dim, torch.randn(3, 4), 2, [1], True)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_dist_is_real(compare, p, dtype):
    x, y = torch.randn(3, 4, dtype=dtype), torch.randn(4, dtype=dtype)
    compare(aten.dist.default, x, y, p, tol=(1e-5, 1e-5))
