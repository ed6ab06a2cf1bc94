"""Random draws: each takes the next key of the program's random state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.operands import DTYPES, widen
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten
Dim = Any  # an int or a JAX dimension expression
Draw = Callable[[Array, tuple[Dim, ...], Any], Array]


def _uniform(key: Array, shape: tuple[Dim, ...], dtype: Any) -> Array:
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        return jax.random.uniform(key, shape, dtype)
    part = np.finfo(dtype).dtype
    return lax.complex(
        *(jax.random.uniform(k, shape, part) for k in jax.random.split(key))
    )


def _normal(key: Array, shape: tuple[Dim, ...], dtype: Any) -> Array:
    return jax.random.normal(key, shape, dtype)


def _shifted(draw: Array, number: float) -> Array:
    """Add a number to each part of the draws, as torch does, the imaginary one too."""
    return draw + number * ((1 + 1j) if jnp.iscomplexobj(draw) else 1)


def _of_size(draw: Draw) -> Callable[..., Array]:
    def rule(
        size: Sequence[Dim], *, dtype: torch.dtype | None = None, **_: object
    ) -> Array:
        target = DTYPES[dtype or torch.float32]
        return draw(current().next_key(), tuple(size), target)

    return rule


def _like(draw: Draw) -> Callable[..., Array]:
    def rule(x: Array, *, dtype: torch.dtype | None = None, **_: object) -> Array:
        target = DTYPES[dtype] if dtype else x.dtype
        return draw(current().next_key(), x.shape, target)

    return rule


lowers(aten.rand.default, aten.rand.generator)(_of_size(_uniform))
lowers(aten.randn.default, aten.randn.generator)(_of_size(_normal))
lowers(aten.rand_like.default)(_like(_uniform))
lowers(aten.randn_like.default)(_like(_normal))


def _integers(low: Dim, high: Dim, shape: Sequence[Dim], dtype: Any) -> Array:
    key = current().next_key()
    return jax.random.randint(key, tuple(shape), low, high, jnp.int64).astype(dtype)


@lowers(aten.randint.low)
def randint_low(
    low: Dim,
    high: Dim,
    size: Sequence[Dim],
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Array:
    return _integers(low, high, size, DTYPES[dtype or torch.int64])


@lowers(aten.randint.default)
def randint(high: Dim, size: Sequence[Dim], **kwargs: Any) -> Array:
    return randint_low(0, high, size, **kwargs)


@lowers(aten.randint_like.default)
def randint_like(
    x: Array, high: Dim, *, dtype: torch.dtype | None = None, **_: object
) -> Array:
    return _integers(0, high, x.shape, DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.randint_like.low_dtype)
def randint_like_low(
    x: Array, low: Dim, high: Dim, *, dtype: torch.dtype | None = None, **_: object
) -> Array:
    return _integers(low, high, x.shape, DTYPES[dtype] if dtype else x.dtype)


@lowers(aten.randperm.default)
def randperm(n: Dim, *, dtype: torch.dtype | None = None, **_: object) -> Array:
    order = jax.random.permutation(current().next_key(), n)
    return order.astype(DTYPES[dtype or torch.int64])


@lowers(aten.bernoulli.default)
def bernoulli(x: Array, **_: object) -> Array:
    return (_uniform(current().next_key(), x.shape, jnp.float32) < x).astype(x.dtype)


@lowers(aten.bernoulli.p)
def bernoulli_p(x: Array, p: float = 0.5, **_: object) -> Array:
    return (_uniform(current().next_key(), x.shape, jnp.float32) < p).astype(x.dtype)


lowers(aten.bernoulli_.float)(bernoulli_p)


@lowers(aten.bernoulli.Tensor, aten.bernoulli_.Tensor)
def bernoulli_tensor(x: Array, p: Array, **_: object) -> Array:
    return (_uniform(current().next_key(), x.shape, jnp.float32) < p).astype(x.dtype)


@lowers(aten.uniform.default, aten.uniform_.default)
def uniform(
    x: Array,
    from_: float = 0.0,
    to: float = 1.0,
    **kwargs: Any,
) -> Array:
    draw = _uniform(current().next_key(), x.shape, widen(x).dtype)
    return _shifted(draw * (to - from_), from_).astype(x.dtype)


@lowers(aten.normal_.default, aten.normal_functional.default)
def normal_(x: Array, mean: float = 0.0, std: float = 1.0, **_: object) -> Array:
    draw = _normal(current().next_key(), x.shape, widen(x).dtype)
    return _shifted(draw * std, mean).astype(x.dtype)


@lowers(aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor)
def normal(mean: Array | float = 0.0, std: Array | float = 1.0, **_: object) -> Array:
    shape = np.broadcast_shapes(jnp.shape(mean), jnp.shape(std))
    dtype = (mean if isinstance(mean, Array) else jnp.asarray(std)).dtype
    return (_normal(current().next_key(), shape, dtype) * std + mean).astype(dtype)


@lowers(aten.normal.float_float)
def normal_of_size(
    mean: float,
    std: float,
    size: Sequence[Dim],
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> Array:
    target = DTYPES[dtype or torch.float32]
    draw = _normal(current().next_key(), tuple(size), target)
    return _shifted(draw * std, mean)


@lowers(aten.exponential.default, aten.exponential_.default)
def exponential(x: Array, lambd: float = 1.0, **_: object) -> Array:
    draw = jax.random.exponential(current().next_key(), x.shape, widen(x).dtype)
    return (draw / lambd).astype(x.dtype)


@lowers(aten.multinomial.default)
def multinomial(
    x: Array, num_samples: int, replacement: bool = False, **_: object
) -> Array:
    """Gumbel noise on the logarithms: the best is one draw, the k best are k without return."""
    logits, key = jnp.log(widen(x)), current().next_key()
    if replacement:
        shape = (*x.shape[:-1], num_samples)
        draws = jax.random.categorical(key, logits[..., None, :], -1, shape)
        return draws.astype(jnp.int64)
    noise = jax.random.gumbel(key, x.shape, logits.dtype)
    return jax.lax.top_k(logits + noise, num_samples)[1].astype(jnp.int64)


@lowers(aten.poisson.default)
def poisson(x: Array, generator: None = None) -> Array:
    key = jax.random.wrap_key_data(current().next_key())
    return jax.random.poisson(key, x, x.shape).astype(x.dtype)


@lowers(aten.cauchy.default, aten.cauchy_.default)
def cauchy(x: Array, median: float = 0.0, sigma: float = 1.0, **_: object) -> Array:
    draw = jax.random.cauchy(current().next_key(), x.shape, widen(x).dtype)
    return (draw * sigma + median).astype(x.dtype)


@lowers(aten.log_normal.default, aten.log_normal_.default)
def log_normal(x: Array, mean: float = 1.0, std: float = 2.0, **_: object) -> Array:
    draw = _normal(current().next_key(), x.shape, widen(x).dtype)
    return jnp.exp(draw * std + mean).astype(x.dtype)


@lowers(aten.geometric.default, aten.geometric_.default)
def geometric(x: Array, p: float, **_: object) -> Array:
    """Trials up to the first success: 1, 2, ..., by the inverse of the distribution."""
    floats = jnp.issubdtype(x.dtype, jnp.floating)
    dtype = widen(x).dtype if floats else jnp.float32
    exponential = jax.random.exponential(current().next_key(), x.shape, dtype)
    draw = jnp.ceil(exponential / -np.log1p(-p)) if p < 1 else jnp.ones(x.shape)
    return jnp.maximum(draw, 1).astype(x.dtype)
