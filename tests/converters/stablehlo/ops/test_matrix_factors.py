"""LU, Householder and Cholesky factors in LAPACK's packed forms."""

from __future__ import annotations

import pytest
import torch

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
TOL = (1e-4, 1e-4)
SQUARE = [(3, 3), (2, 4, 4), (2, 1, 5, 5)]


def r(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


@pytest.mark.parametrize("shape", [*SQUARE, (5, 3), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_lu(compare, shape, dtype):
    x = r(*shape, dtype=dtype)
    compare(aten.linalg_lu.default, x, tol=TOL)
    lu, pivots = torch.linalg.lu_factor(x)
    compare(aten.lu_unpack.default, lu, pivots, tol=TOL)


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_lu_solve(compare, shape, left, adjoint, dtype):
    lu, pivots = torch.linalg.lu_factor(r(*shape, dtype=dtype))
    n = shape[-1]
    b = r(*shape[:-2], n, 2, dtype=dtype) if left else r(*shape[:-2], 2, n, dtype=dtype)
    op = aten.linalg_lu_solve.default
    compare(op, lu, pivots, b, left=left, adjoint=adjoint, tol=(1e-8, 1e-8))


@pytest.mark.parametrize("shape", [*SQUARE, (5, 3), (2, 5, 4)])
def test_householder(compare, shape):
    packed, taus = torch.geqrf(r(*shape))
    compare(aten.geqrf.default, r(*shape), tol=TOL)
    compare(aten.linalg_householder_product.default, packed, taus, tol=TOL)
    for left in (True, False):
        for transpose in (True, False):
            m = shape[-2]
            other = r(*shape[:-2], m, 2) if left else r(*shape[:-2], 2, m)
            args = (packed, taus, other, left, transpose)
            compare(aten.ormqr.default, *args, tol=TOL)


@pytest.mark.parametrize("upper", [True, False])
def test_cholesky_inverse(compare, upper):
    x = r(2, 4, 4)
    factor = torch.linalg.cholesky(x @ x.mT + 4 * torch.eye(4), upper=upper)
    compare(aten.cholesky_inverse.default, factor, upper, tol=TOL)


def test_general_eigenvalues_are_refused():
    rule = find_rule(aten.linalg_eig.default, "xla")
    with pytest.raises(UnsupportedOptionError, match="eigenvalues of general"):
        rule(torch.eye(2).numpy())
