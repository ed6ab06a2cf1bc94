"""One body for the tables of op cases: call the rule, call torch, compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo import ops as _ops  # fills the table
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.registry import find_rule
from tpu_export.runtime.devices import XLA_CPU_OPTIONS

assert _ops


def to_jax(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype == torch.bfloat16:
        bits = x.detach().contiguous().view(torch.int16).numpy().copy()
        return jax.numpy.array(bits.view(DTYPES[x.dtype]))
    return jax.numpy.array(x.detach().numpy().copy())


def to_torch(x: Any) -> torch.Tensor:
    array = np.asarray(x)
    if array.dtype == DTYPES[torch.bfloat16]:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


@pytest.fixture
def compare() -> Callable[..., None]:
    """compare(op, *args, tol=None, target="xla", **kwargs): the rule gives what torch gives.

    tol: (rtol, atol); without it torch.testing's defaults for the dtype.
    """

    def body(
        op: Any, *args: Any, tol: Any = None, target: Any = "xla", **kw: Any
    ) -> None:
        rule = find_rule(op, target)
        assert rule is not None, f"no rule for {op}"
        want = op(*pytree.tree_map(clone, args), **kw)
        with jax.enable_x64(True):
            got = pytree.tree_map(to_torch, compiled(rule, args, kw))
        limits = {} if tol is None else {"rtol": tol[0], "atol": tol[1]}
        if isinstance(want, torch.Tensor):
            want, got = (want,), (got,)
        assert len(want) == len(got)
        for expected, actual in zip(want, got, strict=True):
            torch.testing.assert_close(
                actual, expected.contiguous(), equal_nan=True, **limits
            )

    return body


@pytest.fixture
def compiled_rule() -> Callable[..., Any]:
    """compiled_rule(rule, *args, **kwargs): what a rule gives, as tensors."""

    def body(rule: Any, *args: Any, **kw: Any) -> Any:
        with jax.enable_x64(True):
            return pytree.tree_map(to_torch, compiled(rule, args, kw))

    return body


def compiled(rule: Any, args: Any, kw: Any) -> Any:
    """Run a rule as an artifact does: traced, and compiled with our options.

    Run op by op, XLA:CPU would use its defaults, whose reductions race. A rule that wants
    concrete indices says so, and is run on them.
    """
    leaves, spec = pytree.tree_flatten((args, kw))
    leaves = [to_jax(x) for x in leaves]

    def call(*given: Any) -> Any:
        feed = iter(given)
        own = [next(feed) if isinstance(x, jax.Array) else x for x in leaves]
        args, kw = pytree.tree_unflatten(own, spec)
        return rule(*args, **kw)

    arrays = [x for x in leaves if isinstance(x, jax.Array)]
    try:
        program = jax.jit(call).lower(*arrays)
    except UnsupportedOptionError:
        return call(*arrays)
    return program.compile(compiler_options=dict(XLA_CPU_OPTIONS))(*arrays)


def clone(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x
