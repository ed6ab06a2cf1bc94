"""Backward ops, which a graph holds when forward() itself takes gradients.

Each is the transpose of the rule of its forward op, as JAX derives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array

from tpu_export.converters.stablehlo.registry import find_rule, lowers

aten = torch.ops.aten


def _forward(op: Any) -> Callable[..., Array]:
    rule = find_rule(op, "xla")
    assert rule is not None
    return rule


@lowers(aten.convolution_backward.default)
def convolution_backward(
    grad: Array,
    x: Array,
    weight: Array,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    convolution = _forward(aten.convolution.default)

    def forward(x: Array, weight: Array) -> Array:
        options = (stride, padding, dilation, transposed, output_padding, groups)
        return convolution(x, weight, None, *options)

    _, transpose = jax.vjp(forward, x, weight)
    of_x, of_weight = transpose(grad)
    spatial = tuple(d for d in range(grad.ndim) if d != 1)
    return (
        of_x if output_mask[0] else None,
        of_weight if output_mask[1] else None,
        jnp.sum(grad, axis=spatial) if output_mask[2] else None,
    )


@lowers(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(grad: Array, x: Array, *window: Any) -> Array:
    pool = _forward(aten.avg_pool2d.default)
    _, transpose = jax.vjp(lambda x: pool(x, *window), x)
    return jnp.asarray(transpose(grad)[0])


@lowers(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(grad: Array, x: Array) -> Array:
    pool = _forward(aten._adaptive_avg_pool2d.default)
    _, transpose = jax.vjp(lambda x: pool(x, grad.shape[-2:]), x)
    return jnp.asarray(transpose(grad)[0])


@lowers(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    grad: Array,
    indices: Array,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Array:
    rows = indices.reshape(-1)
    values = grad.reshape(rows.shape[0], grad.shape[-1])
    zeros = jnp.zeros((num_weights, grad.shape[-1]), grad.dtype)
    if scale_grad_by_freq:
        counts = jnp.zeros(num_weights, grad.dtype).at[rows].add(1)
        values = values / counts[rows][:, None]
    values = jnp.where((rows == padding_idx)[:, None], 0, values)
    return zeros.at[rows].add(values)
