"""Regions of a mode, bodies that write in place, and flex_attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops import map as map_op
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


class Model(nn.Module):
    def __init__(self, call: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.lstm, self.gru = nn.LSTM(4, 4), nn.GRU(4, 4)
        self.bias = nn.Parameter(torch.randn(2, 5, 5))
        self.call = call

    def forward(self, *args: Any) -> Any:
        return self.call(self, *args)


def autocast(m: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.linear(x)
        with torch.autocast("cpu", enabled=False):
            z = m.linear(x)
    return y, z


def no_grad(m: Any, x: torch.Tensor) -> Any:
    y = x.clone()
    with torch.no_grad():
        y.mul_(2)
        z = m.linear(y)
    return y + 1, z


def mixed(m: Any, x: torch.Tensor) -> Any:
    """Products of two dtypes, sums that promote, and what stays in float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.linear(x)
        z = m.linear(y.relu()) @ x.T
        moved = torch.index_copy(x, 0, torch.tensor([2, 0]), y[:2])
        sums = y + x, (y + x).softmax(-1), torch.cat([y, x])
        return y, z, y @ x.T, x @ y.T, moved, sums


def recurrent(m: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = m.lstm(m.linear(x))
        return m.gru(y)


def branches(m: Any, x: torch.Tensor) -> Any:
    """Torch leaves the calls that enter and leave a mode among the ops around a branch."""
    before = m.linear(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.linear(x)
        z = torch.cond(
            x.sum() > 0, lambda x: m.linear(x), lambda x: m.linear(x) - 1, (x,)
        )
        with torch.autocast("cpu", enabled=False):
            w = torch.cond(x.sum() > 0, lambda x: m.linear(x), lambda x: x - 1, (x,))
    return before, y, z, w, m.linear(x)


def branches_without_gradients(m: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = torch.cond(x.sum() > 0, lambda x: m.linear(x), lambda x: x - 1, (x,))
    return y, m.linear(x)


def loop(m: Any, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return map_op(lambda row: m.linear(row) * 2, x)


ROUNDED = {mixed: (2e-2, 1e-2), recurrent: (2e-2, 1e-2)}  # products whose terms cancel
CALLS = [
    autocast,
    no_grad,
    mixed,
    recurrent,
    branches,
    branches_without_gradients,
    loop,
]


@pytest.mark.parametrize("call", CALLS)
def test_regions(check_module: Any, call: Any) -> None:
    before = _modes()
    x = torch.rand(3, 4)
    check_module(Model(call), (x,), more=[(-x,)], tol=ROUNDED.get(call))
    assert _modes() == before


def _modes() -> tuple[object, ...]:
    return (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))


def test_a_body_that_writes_in_place(check_module: Any) -> None:
    def body(row: torch.Tensor) -> torch.Tensor:
        y = row.clone()
        y[1:] += 1
        y.relu_()
        return y

    check_module(Model(lambda m, x: map_op(body, x)), (torch.randn(3, 4),))


def relative(m: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    def score(s: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
        return s + m.bias[h, i, j] - 0.1 * (i - j).abs()

    return flex_attention(q, k, v, score_mod=score)


def masked(m: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i > j  # the first row sees nothing

    mask = create_block_mask(causal, None, None, 5, 5, device="cpu")
    return flex_attention(q, k, v, block_mask=mask, enable_gqa=True, scale=0.3)


@pytest.mark.parametrize(("call", "heads"), [(relative, 2), (masked, 1)])
def test_flex_attention(check_module: Any, call: Any, heads: int) -> None:
    q, kv = torch.randn(2, 2, 5, 8), [torch.randn(2, heads, 5, 8) for _ in range(2)]
    check_module(Model(call), (q, *kv), tol=(1e-5, 1e-5))
