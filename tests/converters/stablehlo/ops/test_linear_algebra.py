from __future__ import annotations

import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
TOL = (1e-4, 1e-4)
EYE = 3 * torch.eye(4)


def square(*lead: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return well-conditioned matrices."""
    return torch.randn(*lead, 4, 4, dtype=dtype) * 0.5 + EYE.to(dtype)


def positive(*lead: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = square(*lead, dtype=dtype)
    return x @ x.mH


A, B = square(), square(2, 3)
SPD, SPDS = positive(), positive(2)
DOUBLE, COMPLEX = square(dtype=torch.float64), square(2, dtype=torch.complex64)
TALL, WIDE = torch.randn(2, 6, 3), torch.randn(2, 3, 6)
RIGHT, RIGHTS = torch.randn(4, 2), torch.randn(2, 3, 4, 2)
FACTOR = torch.linalg.cholesky(SPD)
CASES = [
    (aten.inverse.default, (A,), {}),
    (aten.linalg_inv.default, (B,), {}),
    (aten.linalg_inv.default, (COMPLEX,), {}),
    (aten.linalg_inv_ex.default, (DOUBLE,), {}),
    (aten.linalg_solve.default, (A, RIGHT), {}),
    (aten.linalg_solve.default, (B, RIGHTS), {}),
    (aten.linalg_solve.default, (A, RIGHT[:, 0]), {}),
    (aten.linalg_solve.default, (B, RIGHTS[..., 0]), {}),
    (aten.linalg_solve.default, (A, RIGHT.T), {"left": False}),
    (aten.linalg_solve.default, (COMPLEX, COMPLEX.mH.resolve_conj()), {"left": False}),
    (aten.linalg_solve_ex.default, (A, RIGHT), {}),
    (aten.cholesky.default, (SPDS,), {}),
    (aten.cholesky.default, (SPD, True), {}),
    (aten.linalg_cholesky.default, (SPDS,), {}),
    (aten.linalg_cholesky.default, (positive(dtype=torch.complex64),), {}),
    (aten.linalg_cholesky.default, (SPD.triu(1) * 9 + SPD.tril(),), {}),
    (aten.linalg_cholesky_ex.default, (SPD,), {"upper": True}),
    (aten.cholesky_solve.default, (RIGHT, FACTOR), {}),
    (aten.cholesky_solve.default, (RIGHT, FACTOR.T.contiguous(), True), {}),
    (aten.linalg_svdvals.default, (TALL,), {}),
    (aten.linalg_svdvals.default, (COMPLEX,), {}),
    (aten.linalg_eigvalsh.default, (SPDS,), {}),
    (aten.linalg_eigvalsh.default, (A,), {}),
    (aten.linalg_eigvalsh.default, (A, "U"), {}),
    (aten.det.default, (A,), {}),
    (aten.linalg_det.default, (B,), {}),
    (aten.linalg_slogdet.default, (-A,), {}),
    (aten.slogdet.default, (B,), {}),
    (aten.logdet.default, (SPDS,), {}),
    (aten.logdet.default, (A[[1, 0, 2, 3]],), {}),
    (aten.linalg_lu_factor_ex.default, (B,), {}),
    (aten.linalg_lu_factor.default, (TALL,), {}),
    (aten.linalg_pinv.default, (TALL, 1e-15), {}),
    (aten.linalg_pinv.default, (SPD, 1e-15, True), {}),
    (aten.pinverse.default, (WIDE,), {}),
    (aten.linalg_pinv.atol_rtol_float, (TALL,), {"rtol": 0.4}),
    (aten.linalg_pinv.atol_rtol_float, (TALL,), {"atol": 1.0}),
    (aten.linalg_pinv.atol_rtol_tensor, (TALL,), {"atol": torch.tensor(1.0)}),
    (aten.linalg_matrix_exp.default, (B,), {}),
    (aten.linalg_matrix_exp.default, (DOUBLE,), {}),
    (aten.linalg_matrix_power.default, (B, 3), {}),
    (aten.matrix_power.default, (A, 0), {}),
    (aten.matrix_power.default, (A, -2), {}),
    (aten.linalg_cross.default, (WIDE, torch.randn(2, 3, 6)), {"dim": 1}),
    (aten.linalg_cross.default, (torch.randn(5, 3), torch.randn(1, 3)), {}),
    (aten.cross.default, (WIDE, torch.randn(2, 3, 6)), {}),
    (aten.cross.default, (torch.randn(3, 5, 3), torch.randn(3, 5, 3)), {}),
    (aten.trace.default, (torch.randn(3, 5),), {}),
    (aten.trace.default, (torch.arange(12, dtype=torch.int32).view(3, 4),), {}),
    (aten.linalg_solve_triangular.default, (A.triu(), RIGHT), {"upper": True}),
    (aten.linalg_solve_triangular.default, (B.tril(), RIGHTS), {"upper": False}),
    (
        aten.linalg_solve_triangular.default,
        (A.tril(), RIGHT.T.contiguous()),
        {"upper": False, "left": False},
    ),
    (
        aten.linalg_solve_triangular.default,
        (A.triu(), RIGHT),
        {"upper": True, "unitriangular": True},
    ),
    (aten.linalg_solve_triangular.default, (A.triu(), RIGHTS), {"upper": True}),
    (aten.triangular_solve.default, (RIGHT, A), {}),
    (aten.triangular_solve.default, (RIGHT, A, False), {}),
    (aten.triangular_solve.default, (RIGHT, A, True, True), {}),
    (aten.triangular_solve.default, (RIGHT, A, False, True, True), {}),
]


@pytest.mark.filterwarnings(
    "ignore:torch.(cholesky|triangular_solve|linalg|cross|Using)"
)
@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.filterwarnings("ignore:Using torch.cross")
@pytest.mark.parametrize(
    "case", CASES, ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)]
)
def test_values(compare, case):
    op, args, kwargs = case
    compare(op, *args, tol=TOL, **kwargs)


@pytest.mark.parametrize("x", [TALL, WIDE, B, COMPLEX, torch.zeros(2, 3, 3)])
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(compiled_rule, x, mode):
    """The signs of the columns are LAPACK's choice."""
    q, r = compiled_rule(find_rule(aten.linalg_qr.default, "xla"), x, mode)
    want_q, want_r = torch.linalg.qr(x, mode)
    assert (q.shape, r.shape) == (want_q.shape, want_r.shape)
    torch.testing.assert_close(r, r.triu())
    torch.testing.assert_close(r.abs(), want_r.abs(), atol=1e-4, rtol=1e-4)
    if mode != "r":
        torch.testing.assert_close(q @ r, x, atol=1e-4, rtol=1e-4)
        orthonormal(q)


def orthonormal(columns: torch.Tensor) -> None:
    eye = torch.eye(columns.shape[-1], dtype=columns.dtype)
    gram = columns.mH @ columns
    torch.testing.assert_close(gram, eye.expand_as(gram), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("x", [TALL, WIDE, B, COMPLEX])
@pytest.mark.parametrize("full", [True, False])
def test_svd(compiled_rule, x, full):
    u, s, v = compiled_rule(find_rule(aten.linalg_svd.default, "xla"), x, full)
    want = torch.linalg.svd(x, full)
    assert [u.shape, s.shape, v.shape] == [y.shape for y in want]
    torch.testing.assert_close(s, want.S, atol=1e-4, rtol=1e-4)
    orthonormal(u)
    orthonormal(v.mH)
    k = s.shape[-1]
    again = (u[..., :k] * s[..., None, :]) @ v[..., :k, :]
    torch.testing.assert_close(again, x, atol=1e-4, rtol=1e-4)


def test_svd_without_vectors(compare):
    compare(aten._linalg_svd.default, TALL, False, False, tol=TOL)


@pytest.mark.parametrize("x", [SPD, B, positive(2, dtype=torch.complex64)])
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigh(compiled_rule, x, triangle):
    rule = find_rule(aten.linalg_eigh.default, "xla")
    values, vectors = compiled_rule(rule, x, triangle)
    want = torch.linalg.eigh(x, triangle)
    torch.testing.assert_close(values, want.eigenvalues, atol=1e-4, rtol=1e-4)
    orthonormal(vectors)
    half = x.tril() if triangle == "L" else x.triu()
    diagonal = torch.diag_embed(torch.diagonal(x, dim1=-2, dim2=-1).real)
    whole = half + half.mH - diagonal
    again = (vectors * values[..., None, :]) @ vectors.mH
    torch.testing.assert_close(again, whole, atol=1e-4, rtol=1e-4)


def test_eigenvalues_alone(compare):
    compare(aten._linalg_eigh.default, SPDS, "L", False, tol=TOL)


def test_singular_matrices_give_no_number(compiled_rule):
    rule = find_rule(aten.linalg_inv.default, "xla")
    assert not compiled_rule(rule, torch.zeros(3, 3)).isfinite().any()
    assert compiled_rule(find_rule(aten.det.default, "xla"), torch.zeros(3, 3)) == 0


def test_a_module_that_checks_errors(check_module):
    class Solve(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.linalg.solve(a, b), torch.linalg.inv(a), torch.linalg.det(a)

    check_module(Solve(), (A, RIGHT), tol=TOL)
