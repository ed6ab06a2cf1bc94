from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from tpu_export.converters.stablehlo.attention_facts import attention_calls

Q = torch.randn(2, 3, 6, 4)
PADDING = torch.tensor([[1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]).bool()


def causal(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(6)
    return sdpa(x, x, x, (rows[:, None] >= rows)[None, None].expand(2, -1, 6, 6))


def all_visible(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    return sdpa(x, x, x, attn_mask=torch.arange(6)[:, None] + torch.arange(6) >= 0)


def expanded_padding(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(6)[:, None] >= 0
    mask = rows & padding[:, None, None, :]
    return sdpa(x, x, x, mask.expand(2, -1, 6, 6))


def hidden_row(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(6)
    return sdpa(x, x, x, rows[:, None] > rows)


def causal_padding(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(6)
    return sdpa(x, x, x, (rows[:, None] >= rows) & padding[:, None, None, :])


def written(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[0] = False
    return sdpa(x, x, x, mask)


def additive(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    return sdpa(x, x, x, torch.zeros(6, 6) + torch.arange(6))


Model = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
CASES = [  # model, (shape of the mask that stays, every row sees) or None: not looked at
    (causal, ((2, 1, 6, 6), True)),
    (all_visible, (None, True)),
    (expanded_padding, ((2, 1, 1, 6), False)),
    (hidden_row, ((6, 6), False)),
    (causal_padding, ((2, 1, 6, 6), False)),
    (additive, ((6, 6), False)),
    (written, None),
]


class Module(torch.nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.model(x, padding)


@pytest.mark.parametrize(("model", "expected"), CASES)
def test_what_is_proved(model: Model, expected: tuple[object, bool] | None) -> None:
    program = torch.export.export(Module(model), (Q, PADDING))
    calls = list(attention_calls(program.graph_module.graph).values())
    if expected is None:
        assert calls == []
        return
    (call,) = calls
    mask = call.args[3]
    shape = tuple(mask.meta["val"].shape) if mask else None
    assert (shape, call.every_row_sees) == expected


def grouped(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    few = x[:, :1].sin()
    k = few[:, :, None].expand(2, 1, 3, 6, 4).reshape(2, 3, 6, 4)
    return sdpa(x, k, k.clone(), padding[:, None, None, :])


def repeated(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    k, v = (t[:, :, None].expand(2, 3, 2, 6, 4).reshape(2, 6, 6, 4) for t in (x, x + 1))
    q = torch.cat([x, x.cos()], 1)
    return sdpa(q, k, v, padding[:, None, None, :])


def tiled(x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    k = x[:, None].expand(2, 2, 3, 6, 4).reshape(2, 6, 6, 4)  # another order of heads
    return sdpa(torch.cat([x, x.cos()], 1), k, k)


HEADS = [(grouped, False), (repeated, True), (tiled, False), (causal, False)]


@pytest.mark.parametrize(("model", "expected"), HEADS)
def test_repeated_heads(model: Model, expected: bool) -> None:
    program = torch.export.export(Module(model), (Q, PADDING))
    (call,) = attention_calls(program.graph_module.graph).values()
    assert call.kwargs.get("enable_gqa", False) is expected


@pytest.mark.parametrize("model", [m for m, _ in [*CASES, *HEADS]])
def test_the_result_is_torch_s(model: Model, check_module: Any) -> None:
    check_module(Module(model), (Q, PADDING))
