"""Matrix products: linear, matmul and their kin."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import (
    DTYPES,
    Number,
    axis,
    cast,
    scaled,
    widen,
)
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten


@lowers(aten.linear.default)
def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    # Contracting the last axes of both needs no transposed weight.
    contract = (((x.ndim - 1,), (weight.ndim - 1,)), ((), ()))
    y = lax.dot_general(x, weight, contract)
    return y if bias is None else y + bias


@lowers(
    aten.matmul.default,
    aten.mm.default,
    aten.bmm.default,
    aten.mv.default,
    aten.dot.default,
    aten.linalg_matmul.default,
)
def matmul(x: Array, y: Array) -> Array:
    return jnp.matmul(x, y)


@lowers(aten.mm.dtype, aten.bmm.dtype)
def matmul_dtype(x: Array, y: Array, out_dtype: torch.dtype) -> Array:
    return jnp.matmul(x, y, preferred_element_type=DTYPES[out_dtype])


@lowers(aten._int_mm.default)
def int_mm(x: Array, y: Array) -> Array:
    return matmul_dtype(x, y, torch.int32)


@lowers(aten._weight_int8pack_mm.default)
def weight_int8pack_mm(x: Array, weight: Array, scales: Array) -> Array:
    y = jnp.matmul(widen(x), weight.T.astype(jnp.float32))
    return (y * widen(scales)).astype(x.dtype)


@lowers(aten.vdot.default, aten.linalg_vecdot.default)
def vdot(x: Array, y: Array, *, dim: int = -1) -> Array:
    return jnp.sum(jnp.conj(x) * y, axis=dim, dtype=x.dtype)


@lowers(aten.outer.default, aten.ger.default)
def outer(x: Array, y: Array) -> Array:
    return x[:, None] * y[None, :]


@lowers(aten.inner.default)
def inner(x: Array, y: Array) -> Array:
    return jnp.inner(x, y) if x.ndim and y.ndim else x * y


@lowers(aten.kron.default)
def kron(x: Array, y: Array) -> Array:
    if x.dtype == bool and y.dtype == bool:
        return jnp.kron(x.astype(jnp.uint8), y.astype(jnp.uint8)).astype(bool)
    return jnp.kron(x, y)


def _combine(x: Array, product: Array, beta: Number, alpha: Number) -> Array:
    """Return beta * x + alpha * product; beta 0 ignores x, NaN and all, as torch does."""
    product = scaled(product, alpha)
    return product if beta == 0 else scaled(x, beta) + product


@lowers(aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
def addmm(
    x: Array, a: Array, b: Array, *, beta: Number = 1, alpha: Number = 1
) -> Array:
    product = jnp.matmul(a, b)
    return jnp.broadcast_to(_combine(x, product, beta, alpha), product.shape)


@lowers(aten.addmm.dtype, aten.baddbmm.dtype)
def addmm_dtype(
    x: Array,
    a: Array,
    b: Array,
    out_dtype: torch.dtype,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> Array:
    product = matmul_dtype(a, b, out_dtype)
    return _combine(cast(x, out_dtype), product, beta, alpha)


@lowers(aten.addbmm.default)
def addbmm(
    x: Array, a: Array, b: Array, *, beta: Number = 1, alpha: Number = 1
) -> Array:
    product = lax.dot_general(a, b, (((0, 2), (0, 1)), ((), ())))
    return _combine(x, product, beta, alpha)


@lowers(aten.addr.default)
def addr(x: Array, a: Array, b: Array, *, beta: Number = 1, alpha: Number = 1) -> Array:
    return _combine(x, outer(a, b), beta, alpha)


@lowers(aten.einsum.default)
def einsum(
    equation: str, tensors: Sequence[Array], *, path: Sequence[int] | None = None
) -> Array:
    equation = equation.replace(" ", "")
    dtype = tensors[0].dtype
    if jnp.issubdtype(dtype, jnp.integer) and _sums_one_alone(equation):
        tensors = [tensor.astype(jnp.int64) for tensor in tensors]
    return jnp.einsum(equation, *tensors)


def _sums_one_alone(equation: str) -> bool:
    """Whether an index of one operand only is summed: by torch.sum, so in 64 bits."""
    left, arrow, kept = equation.partition("->")
    count = {c: sum(c in term for term in left.split(",")) for c in left if c.isalpha()}
    if not arrow:
        kept = "".join(c for c in count if left.count(c) == 1)
    return any(n == 1 and c not in kept for c, n in count.items())


@lowers(aten.bilinear.default)
def bilinear(x: Array, y: Array, weight: Array, bias: Array | None = None) -> Array:
    z = jnp.einsum("...i,oij,...j->...o", x, weight, y)
    return z if bias is None else z + bias


@lowers(aten.tensordot.default)
def tensordot(
    x: Array, y: Array, dims_self: Sequence[int], dims_other: Sequence[int]
) -> Array:
    left = tuple(axis(d, x.ndim) for d in dims_self)
    right = tuple(axis(d, y.ndim) for d in dims_other)
    for i, j in zip(left, right, strict=True):  # a contracted axis may be broadcast
        if x.shape[i] == 1 and y.shape[j] != 1:
            y = jnp.sum(y, axis=j, keepdims=True, dtype=y.dtype)
        elif y.shape[j] == 1 and x.shape[i] != 1:
            x = jnp.sum(x, axis=i, keepdims=True, dtype=x.dtype)
    return jnp.tensordot(x, y, (left, right))


@lowers(aten._trilinear.default)
def trilinear(
    x: Array,
    y: Array,
    z: Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Array:
    factors = zip((x, y, z), (expand1, expand2, expand3), strict=True)
    a, b, c = (jnp.expand_dims(t, tuple(dims)) if dims else t for t, dims in factors)
    return jnp.sum(a * b * c, axis=tuple(sumdim))


@lowers(aten.chain_matmul.default, aten.linalg_multi_dot.default)
def multi_dot(tensors: Sequence[Array]) -> Array:
    return jnp.linalg.multi_dot(list(tensors)) if len(tensors) > 1 else tensors[0]
