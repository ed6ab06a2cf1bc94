"""Running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import DTYPES, axis
from tpu_export.converters.stablehlo.registry import lowers

aten = torch.ops.aten

_RUNNING: dict[Any, Callable[..., Array]] = {
    aten.cumsum.default: lax.cumsum,
    aten.cumprod.default: lax.cumprod,
}
for _op, _function in _RUNNING.items():

    @lowers(_op)
    def _running(
        x: Array,
        dim: int,
        *,
        dtype: torch.dtype | None = None,
        _f: Callable[..., Array] = _function,
    ) -> Array:
        exact = jnp.issubdtype(x.dtype, jnp.inexact)
        target = DTYPES[dtype] if dtype else x.dtype if exact else jnp.int64
        x = x.astype(target)
        return _f(x, axis(dim, x.ndim)) if x.ndim else x
