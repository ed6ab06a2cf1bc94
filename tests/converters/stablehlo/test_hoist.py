"""What is hoisted, what the memory guard keeps in main, and that both compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from tpu_export.converters.stablehlo.hoist import SLACK, split

S = jax.ShapeDtypeStruct
N = 256
WEIGHTS = (S((N, N), jnp.float32), S((2 * N, N), jnp.int8), S((2 * N, 1), jnp.float32))
X = S((4, N), jnp.float32)
BIG = (64, N, N)

CASES: dict[str, tuple[bool, Callable[..., Any]]] = {
    "transpose": (True, lambda a, q, s, x: x @ (a.T * 1)),
    "broadcast": (False, lambda a, q, s, x: (x[0] * jnp.broadcast_to(a, BIG)).sum()),
    "dequantize": (False, lambda a, q, s, x: x @ (q.astype(jnp.float32) * s).T),
    "tied": (False, lambda a, q, s, x: (x @ a) @ (a * 2)),
    "two copies": (False, lambda a, q, s, x: (x @ (a * 3)) @ (a * 2)),
    "same twice": (True, lambda a, q, s, x: (x @ (a * 2)) @ (a * 2)),
    "reduce": (True, lambda a, q, s, x: x + jnp.broadcast_to(a, BIG).sum((0, 1))),
    "mask": (True, lambda a, q, s, x: jnp.tril(a) @ x.T),
    "inner jit": (True, lambda a, q, s, x: jax.nn.silu(a) @ x.T),
    "rank only": (False, lambda a, q, s, x: x[0] + a[None]),
    "unread weight": (False, lambda a, q, s, x: x + 1),
}


@pytest.mark.parametrize("name", CASES)
def test_split(name: str) -> None:
    hoisted, function = CASES[name]
    closed = jax.make_jaxpr(function)(*WEIGHTS, X)
    parts = split(closed, len(WEIGHTS))
    assert (parts.prepare is not None) is hoisted
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 9, s.shape).astype(s.dtype) for s in (*WEIGHTS, X)]
    computed: list[Any] = []
    if parts.prepare is not None:
        raw = [arrays[i] for i in parts.weights]
        computed = list(jaxpr_as_fun(parts.prepare)(*raw))
    fresh = iter(computed)
    leading = [next(fresh) if i is None else arrays[i] for i in parts.boundary]
    got = jaxpr_as_fun(parts.main)(*leading, arrays[-1])
    np.testing.assert_allclose(got[0], function(*arrays), rtol=1e-4, atol=1e-2)
    total = sum(np.prod(s.shape) * s.dtype.itemsize for s in WEIGHTS)
    assert sum(np.asarray(v).nbytes for v in leading) <= (1 + SLACK) * total


def test_what_is_inlined_keeps_its_place() -> None:
    def function(x: Any) -> Any:
        with jax.named_scope("net.act/aten.where/model.py:3"):
            return jax.jit(lambda x: jnp.where(x > 0, x, 0))(x)

    main = split(jax.make_jaxpr(function)(X), 0).main
    assert {str(e.source_info.name_stack) for e in main.jaxpr.eqns} == {
        "net.act/aten.where/model.py:3"
    }
