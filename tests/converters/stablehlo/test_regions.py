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


@pytest.mark.parametrize("call", [autocast, no_grad])
def test_regions(check_module: Any, call: Any) -> None:
    check_module(Model(call), (torch.randn(3, 4),))


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
