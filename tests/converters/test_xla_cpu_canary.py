"""jaxlib 0.10.2's XLA:CPU is wrong by default; with our compiler option it is exact.

Two independent faults of YNNPACK fusions: a race in reductions, and a deterministic error
(jax-ml/jax#39103). A jaxlib upgrade that breaks either again is noticed here.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpu_export.runtime.devices import XLA_CPU_OPTIONS


def compiled(function: Any, *args: Any) -> Any:
    return (
        jax.jit(function).lower(*args).compile(compiler_options=dict(XLA_CPU_OPTIONS))
    )


@pytest.mark.parametrize("copies", [2, 64])
def test_reductions_do_not_race(copies: int) -> None:
    a = np.random.default_rng(0).integers(-9, 9, (1024, 1024)).astype(np.float32)

    def total(x: Any) -> Any:
        return jnp.broadcast_to(x, (copies, 1024, 1024)).sum((0, 1))

    run = compiled(total, a)
    exact = copies * a.astype(np.float64).sum(0)
    for _ in range(5):
        np.testing.assert_array_equal(run(a), exact)


@pytest.mark.parametrize(("dtype", "n"), [("float64", 16385), ("float32", 32769)])
def test_products_in_reductions_are_exact(dtype: str, n: int) -> None:
    with jax.enable_x64(True):
        zeros = np.zeros(n, dtype)
        x = np.stack([np.arange(n, dtype=dtype), zeros, zeros], 1)
        eye = np.eye(3, dtype=dtype)
        run = compiled(lambda v: jax.vmap(lambda row: jnp.sum((eye @ row) ** 2))(v), x)
        exact = np.arange(n, dtype=np.float64) ** 2
        error = np.abs(np.asarray(run(x), np.float64) - exact).max() / exact.max()
    assert error < 1e-6
