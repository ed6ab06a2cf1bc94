"""Products of groups of rows with one matrix a group: mixtures of experts."""

from __future__ import annotations

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.registry import lowers, lowers_named

aten = torch.ops.aten
# Rows a step. lax.ragged_dot multiplies every row by every matrix where the compiler has no
# kernel of its own: XLA:CPU (6 to 20 times slower with 16 to 32 experts) and libtpu 0.0.52.
BLOCK = 64


def _groups(ends: Array) -> tuple[Array, Array]:
    """Return where each group starts, and how many steps were taken after it."""
    starts = jnp.concatenate([jnp.zeros(1, jnp.int32), ends[:-1]])
    steps = (jnp.maximum(ends - starts, 0) + (BLOCK - 1)) // BLOCK
    return starts, jnp.cumsum(steps, dtype=jnp.int32)


@lowers_named("transformers::grouped_mm_fallback")
def grouped_rows(x: Array, weight: Array, offs: Array) -> Array:
    """Multiply rows offs[g - 1] to offs[g] by weight[g]; rows after the last give 0.

    Args:
        x: [S, K], ordered by group.
        weight: [G, K, N].
        offs: [G], where each group ends; it never falls.
    """
    ends = offs.astype(jnp.int32)
    if current().target == "litert":  # its converter has no loop with such slices
        return lax.ragged_dot(x, weight, jnp.diff(ends, prepend=0))
    starts, upto = _groups(ends)
    zero = jnp.int32(0)
    padded = jnp.pad(x, ((0, BLOCK), (0, 0)))  # the last block may reach past the end

    def step(i: Array, y: Array) -> Array:
        group = jnp.sum(upto <= i, dtype=jnp.int32)
        before = jnp.where(group > 0, upto[group - 1], 0)
        row = starts[group] + (i - before) * BLOCK
        rows = lax.dynamic_slice(padded, (row, zero), (BLOCK, x.shape[1]))
        old = lax.dynamic_slice(y, (row, zero), (BLOCK, y.shape[1]))
        mine = row + lax.iota(jnp.int32, BLOCK) < ends[group]
        new = jnp.where(mine[:, None], jnp.matmul(rows, weight[group]), old)
        return lax.dynamic_update_slice(y, new, (row, zero))

    blank = jnp.zeros((padded.shape[0], weight.shape[2]), x.dtype)
    filled: Array = lax.fori_loop(zero, upto[-1], step, blank)
    return filled[: x.shape[0]]


@lowers(aten._grouped_mm.default)
def grouped_mm(
    x: Array,
    weight: Array,
    offs: Array | None = None,
    bias: Array | None = None,
    out_dtype: torch.dtype | None = None,
) -> Array:
    if offs is None:
        y = jnp.matmul(x, weight)
    elif x.ndim == 2 and weight.ndim == 3:
        y = grouped_rows(x, weight, offs)
    else:
        raise UnsupportedOptionError(
            f"_grouped_mm of {x.ndim}-d and {weight.ndim}-d tensors with offsets",
            hint="group the rows of a 2-d tensor against a 3-d weight",
        )
    y = y if bias is None else y + bias
    return y if out_dtype is None else y.astype(DTYPES[out_dtype])
