"""Factors in LAPACK's packed forms: LU with pivots, Householder reflectors, eigenvectors."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax
from jax._src.lax.linalg import geqrf as packed_qr  # not exported; qr() drops the taus

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.ops.linear_algebra import (
    cholesky_solve,
    solve_triangular,
)
from tpu_export.converters.stablehlo.ops.shape import adjoint as transposed
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.cholesky_inverse.default)
def cholesky_inverse(factor: Array, upper: bool = False) -> Array:
    eye = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    triangle = jnp.triu(factor) if upper else jnp.tril(factor)
    return cholesky_solve(eye, triangle, upper)


def _permutation_matrix(permutation: Array, dtype: Any) -> Array:
    """Return P of A = P L U, where A[permutation] = L U."""
    size = permutation.shape[-1]
    columns = permutation[..., None, :] == jnp.arange(size)[:, None]
    return columns.astype(dtype)


def _triangles(lu: Array) -> tuple[Array, Array]:
    """Return L [..., m, k] with ones on its diagonal, and U [..., k, n]; k = min(m, n)."""
    k = min(lu.shape[-2:])
    lower = jnp.tril(lu[..., :, :k], -1)
    ones = jnp.eye(lu.shape[-2], k, dtype=lu.dtype)
    return lower + ones, jnp.triu(lu[..., :k, :])


@lowers(aten.linalg_lu.default)
def linalg_lu(x: Array, *, pivot: bool = True) -> tuple[Array, Array, Array]:
    lu, _, permutation = lax.linalg.lu(x)
    return (_permutation_matrix(permutation, x.dtype), *_triangles(lu))


@lowers(aten.lu_unpack.default)
def lu_unpack(
    lu: Array, pivots: Array, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Array, Array, Array]:
    empty = jnp.zeros((0,), lu.dtype)
    lower, upper = _triangles(lu) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, lower, upper
    permutation = _permutation(pivots, lu.shape[-2])
    return _permutation_matrix(permutation, lu.dtype), lower, upper


def _permutation(pivots: Array, size: int) -> Array:
    return lax.linalg.lu_pivots_to_permutation(pivots - 1, size)  # torch counts from 1


@lowers(aten.linalg_lu_solve.default)
def linalg_lu_solve(
    lu: Array, pivots: Array, b: Array, *, left: bool = True, adjoint: bool = False
) -> Array:
    if not left:  # X A = B is A^H X^H = B^H
        return transposed(
            linalg_lu_solve(lu, pivots, transposed(b), adjoint=not adjoint)
        )
    lead = jnp.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    b = jnp.broadcast_to(b, (*lead, *b.shape[-2:]))
    rows = _permutation(pivots, lu.shape[-2])
    rows = jnp.broadcast_to(rows, (*lead, rows.shape[-1]))
    if adjoint:
        half = solve_triangular(transposed(jnp.triu(lu)), b, upper=False)
        lower = transposed(jnp.tril(lu))
        x = solve_triangular(lower, half, upper=True, unitriangular=True)
        return jnp.take_along_axis(x, jnp.argsort(rows, -1)[..., None], -2)
    b = jnp.take_along_axis(b, rows[..., None], -2)
    half = solve_triangular(jnp.tril(lu), b, upper=False, unitriangular=True)
    return solve_triangular(jnp.triu(lu), half, upper=True)


@lowers(aten.lu_solve.default)
def lu_solve(b: Array, lu: Array, pivots: Array) -> Array:
    return linalg_lu_solve(lu, pivots, b)


@lowers(aten.geqrf.default)
def geqrf(x: Array) -> tuple[Array, Array]:
    packed, taus = packed_qr(x)
    return packed, taus


@lowers(aten.linalg_householder_product.default)
def householder_product(reflectors: Array, taus: Array) -> Array:
    return lax.linalg.householder_product(reflectors, taus)


@lowers(aten.ormqr.default)
def ormqr(
    reflectors: Array,
    taus: Array,
    other: Array,
    left: bool = True,
    transpose: bool = False,
) -> Array:
    rows, columns = reflectors.shape[-2:]
    pad = [(0, 0)] * (reflectors.ndim - 1) + [(0, rows - columns)]
    q = lax.linalg.householder_product(jnp.pad(reflectors, pad), taus)
    q = transposed(q) if transpose else q
    highest = lax.Precision.HIGHEST
    if left:
        return jnp.matmul(q, other, precision=highest)
    return jnp.matmul(other, q, precision=highest)


@lowers(
    aten.linalg_eig.default, aten.linalg_eigvals.default, aten._linalg_eigvals.default
)
def eig(x: Array) -> Array:
    raise UnsupportedOptionError(
        "XLA has no eigenvalues of general matrices on TPU",
        hint="use torch.linalg.eigh when the matrix is symmetric or Hermitian",
    )
