"""repeat_interleave() by a tensor of counts."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.ops.indexing import concrete, counted
from tpu_export.converters.stablehlo.registry import lowers
from tpu_export.converters.stablehlo.repeats import Repeats
from tpu_export.converters.stablehlo.running import not_empty, running

aten = torch.ops.aten


@lowers(aten.repeat_interleave.Tensor, aten.repeat_interleave.self_Tensor)
def repeat_interleave(*args: Any, output_size: Any = None) -> Array:
    repeats = Repeats.of(*args)
    total = _total(repeats) if output_size is None else output_size
    if isinstance(total, int) and isinstance(repeats.rows, int):
        return jnp.repeat(
            repeats.items, repeats.times, repeats.axis, total_repeat_length=total
        )
    ends = running(lax.cumsum, repeats.each, 0)
    places = lax.iota(ends.dtype, total)
    if isinstance(repeats.rows, int):
        row = jnp.searchsorted(ends, places, side="right")
    else:  # a binary search has a number of steps, which a dynamic size leaves open
        row = jnp.sum(ends <= places[:, None], -1, jnp.int32)
    items = not_empty(repeats.items, repeats.axis)
    return jnp.take(items, row, axis=repeats.axis, mode="clip")


def _total(repeats: Repeats) -> Any:
    known = concrete(repeats.times)
    if known is None:
        return counted("repeat_interleave without output_size")
    return int(known[0]) * repeats.rows if len(known) == 1 else int(known.sum())
