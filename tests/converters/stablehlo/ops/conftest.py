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
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.registry import find_rule

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
            got = rule(*pytree.tree_map(to_jax, args), **pytree.tree_map(to_jax, kw))
            got = pytree.tree_map(to_torch, got)
        limits = {} if tol is None else {"rtol": tol[0], "atol": tol[1]}
        if isinstance(want, torch.Tensor):
            want, got = (want,), (got,)
        assert len(want) == len(got)
        for expected, actual in zip(want, got, strict=True):
            torch.testing.assert_close(
                actual, expected.contiguous(), equal_nan=True, **limits
            )

    return body


def clone(x: Any) -> Any:
    return x.clone() if isinstance(x, torch.Tensor) else x
