"""Factorizations and solutions of dense matrices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import widen
from tpu_export.converters.stablehlo.ops.shape import adjoint
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.inverse.default, aten.linalg_inv.default)
def inverse(x: Array) -> Array:
    return jnp.asarray(jnp.linalg.inv(x))


@lowers(aten.linalg_inv_ex.default)
def inverse_ex(x: Array, *, check_errors: bool = False) -> tuple[Array, Array]:
    return jnp.linalg.inv(x), jnp.zeros(x.shape[:-2], jnp.int32)


def is_vector(a: Array, b: Array) -> bool:
    return b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])


@lowers(aten.linalg_solve.default)
def solve(a: Array, b: Array, *, left: bool = True) -> Array:
    if not left:
        return adjoint(solve(adjoint(a), adjoint(b)))
    if is_vector(a, b):
        return jnp.asarray(jnp.linalg.solve(a, b[..., None])[..., 0])
    return jnp.asarray(jnp.linalg.solve(a, b))


@lowers(aten.linalg_solve_ex.default)
def solve_ex(
    a: Array, b: Array, *, left: bool = True, check_errors: bool = False
) -> tuple[Array, Array]:
    return solve(a, b, left=left), jnp.zeros(a.shape[:-2], jnp.int32)


@lowers(aten._linalg_solve_ex.default)
def solve_with_factors(
    a: Array, b: Array, *, left: bool = True, check_errors: bool = False
) -> tuple[Array, Array, Array, Array]:
    lu, pivots, info = lu_factor_ex(a)
    return solve(a, b, left=left), lu, pivots, info


@lowers(aten.cholesky.default, aten.linalg_cholesky.default)
def cholesky(x: Array, upper: bool = False) -> Array:
    y = lax.linalg.cholesky(x, symmetrize_input=False)
    return adjoint(y) if upper else y


@lowers(aten.linalg_cholesky_ex.default)
def cholesky_ex(
    x: Array, *, upper: bool = False, check_errors: bool = False
) -> tuple[Array, Array]:
    return cholesky(x, upper), jnp.zeros(x.shape[:-2], jnp.int32)


@lowers(aten.cholesky_solve.default)
def cholesky_solve(b: Array, factor: Array, upper: bool = False) -> Array:
    return jax.scipy.linalg.cho_solve((factor, not upper), b)


@lowers(aten.linalg_qr.default)
def qr(x: Array, mode: str = "reduced") -> tuple[Array, Array]:
    if mode == "r":
        return jnp.zeros((0,), x.dtype), jnp.linalg.qr(x, "r")
    q, r = jnp.linalg.qr(x, mode)
    return q, r


@lowers(aten.linalg_svd.default)
def svd(
    x: Array, full_matrices: bool = True, *, driver: str | None = None
) -> tuple[Array, Array, Array]:
    u, s, v = jnp.linalg.svd(x, full_matrices=full_matrices)
    return u, s, v


@lowers(aten._linalg_svd.default)
def svd_core(
    x: Array,
    full_matrices: bool = False,
    compute_uv: bool = True,
    *,
    driver: str | None = None,
) -> tuple[Array, Array, Array]:
    if compute_uv:
        return svd(x, full_matrices)
    empty = jnp.zeros((0,), x.dtype)
    return empty, jnp.linalg.svd(x, compute_uv=False), empty


@lowers(aten.linalg_svdvals.default)
def svdvals(x: Array, *, driver: str | None = None) -> Array:
    return jnp.asarray(jnp.linalg.svd(x, compute_uv=False))


@lowers(aten.linalg_eigh.default)
def eigh(x: Array, UPLO: str = "L") -> tuple[Array, Array]:  # noqa: N803
    values, vectors = jnp.linalg.eigh(
        _hermitian(x, UPLO == "U"), symmetrize_input=False
    )
    return values, vectors


def _hermitian(x: Array, upper: bool) -> Array:
    """Return the matrix of one triangle: torch reads no more of it."""
    triangle = jnp.triu(x) if upper else jnp.tril(x)
    strict = jnp.triu(x, 1) if upper else jnp.tril(x, -1)
    return triangle + adjoint(strict)


@lowers(aten._linalg_eigh.default)
def eigh_core(
    x: Array,
    UPLO: str = "L",  # noqa: N803
    compute_v: bool = True,
) -> tuple[Array, Array]:
    values, vectors = eigh(x, UPLO)
    return values, vectors if compute_v else jnp.zeros((0,), x.dtype)


@lowers(aten.linalg_eigvalsh.default)
def eigvalsh(x: Array, UPLO: str = "L") -> Array:  # noqa: N803
    return eigh(x, UPLO)[0]


@lowers(aten.det.default, aten.linalg_det.default)
def det(x: Array) -> Array:
    return jnp.asarray(jnp.linalg.det(x))


@lowers(aten.linalg_slogdet.default, aten.slogdet.default)
def slogdet(x: Array) -> tuple[Array, Array]:
    sign, size = jnp.linalg.slogdet(x)
    return sign, size


@lowers(aten.logdet.default)
def logdet(x: Array) -> Array:
    sign, size = jnp.linalg.slogdet(x)
    if jnp.iscomplexobj(x):
        return jnp.asarray(jnp.log(sign) + size)
    return jnp.where(sign == -1, jnp.nan, size)


@lowers(aten.linalg_lu_factor_ex.default)
def lu_factor_ex(
    x: Array, *, pivot: bool = True, check_errors: bool = False
) -> tuple[Array, Array, Array]:
    lu, pivots, _ = lax.linalg.lu(x)
    return lu, pivots.astype(jnp.int32) + 1, jnp.zeros(x.shape[:-2], jnp.int32)


@lowers(aten._linalg_check_errors.default)
def check_errors(info: Array, api_name: str, *, is_matrix: bool) -> tuple[()]:
    """Nothing to raise from a compiled program: singular input gives NaN or infinity."""
    return ()


@lowers(aten.linalg_lu_factor.default)
def lu_factor(x: Array, *, pivot: bool = True) -> tuple[Array, Array]:
    return lu_factor_ex(x, pivot=pivot)[:2]


@lowers(aten.linalg_pinv.atol_rtol_tensor, aten.linalg_pinv.atol_rtol_float)
def pinv_within(
    x: Array,
    *,
    atol: Array | float | None = None,
    rtol: Array | float | None = None,
    hermitian: bool = False,
) -> Array:
    """Pseudo-inverse without singular values up to max(atol, rtol * the largest)."""
    if 0 in x.shape:
        return jnp.swapaxes(jnp.zeros_like(x), -1, -2)
    real = jnp.real(x).dtype
    absolute = jnp.asarray(0.0 if atol is None else atol, real)
    default = max(x.shape[-2:]) * float(np.finfo(real).eps)
    # A positive atol alone turns the relative cut off, as torch documents it.
    relative = jnp.where(absolute > 0, 0.0, default) if rtol is None else rtol
    relative = jnp.asarray(relative, real)
    if hermitian:
        values, vectors = eigh(x)
        sizes, left, right = jnp.abs(values), vectors, adjoint(vectors)
    else:
        left, values, right = jnp.linalg.svd(x, full_matrices=False)
        sizes = values
    cut = jnp.maximum(
        absolute[..., None], relative[..., None] * jnp.max(sizes, -1, keepdims=True)
    )
    inverse = jnp.where(sizes > cut, 1 / values, 0)
    scaled = adjoint(right) * inverse[..., None, :].astype(x.dtype)
    return jnp.matmul(scaled, adjoint(left), precision="highest")


@lowers(aten.linalg_pinv.default, aten.pinverse.default)
def pinv(x: Array, rcond: float = 1e-15, hermitian: bool = False) -> Array:
    return pinv_within(x, rtol=rcond, hermitian=hermitian)


@lowers(aten.linalg_matrix_exp.default, aten.matrix_exp.default)
def matrix_exp(x: Array) -> Array:
    return jnp.asarray(jax.scipy.linalg.expm(widen(x))).astype(x.dtype)


@lowers(aten.matrix_power.default, aten.linalg_matrix_power.default)
def matrix_power(x: Array, n: int) -> Array:
    return jnp.asarray(jnp.linalg.matrix_power(x, n))


@lowers(aten.linalg_cross.default)
def linalg_cross(x: Array, other: Array, *, dim: int = -1) -> Array:
    x, other = jnp.broadcast_arrays(x, other)
    return jnp.cross(x, other, axis=dim)


@lowers(aten.cross.default)
def cross(x: Array, other: Array, dim: int | None = None) -> Array:
    if dim is None:
        dim = next(d for d, size in enumerate(x.shape) if size == 3)
    return linalg_cross(x, other, dim=dim)


@lowers(aten.trace.default)
def trace(x: Array) -> Array:
    exact = jnp.issubdtype(x.dtype, jnp.inexact)
    return jnp.trace(x if exact else x.astype(jnp.int64))


@lowers(aten.linalg_solve_triangular.default)
def solve_triangular(
    a: Array,
    b: Array,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Array:
    lead = jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = jnp.broadcast_to(b, (*lead, *b.shape[-2:]))
    return lax.linalg.triangular_solve(
        a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular
    )


@lowers(aten.triangular_solve.default)
def triangular_solve(
    b: Array,
    a: Array,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Array, Array]:
    triangle = jnp.triu(a) if upper else jnp.tril(a)
    if transpose:
        triangle, upper = jnp.swapaxes(triangle, -1, -2), not upper
    x = solve_triangular(triangle, b, upper=upper, unitriangular=unitriangular)
    return x, a
