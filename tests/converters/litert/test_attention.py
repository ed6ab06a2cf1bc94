"""Masks of attention: XNNPACK takes sums and products, and no choices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

HIDDEN_ROW = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [False] * 6])
MASKS = {
    "keys": HIDDEN_ROW[:, None, None],
    "pairs": torch.rand(6, 6) > 0.3,
    "all": (torch.rand(3, 2, 6, 6) > 0.5) & HIDDEN_ROW[:, None, None],
}


class Layers(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for _ in range(3):
            x = x + scaled_dot_product_attention(x, x, x, mask, is_causal=self.causal)
        return x


@pytest.mark.parametrize("kind", [*MASKS, "causal"])
def test_layers_share_the_choice_of_their_mask(right_in_both: Any, kind: str) -> None:
    x = torch.randn(3, 2, 6, 8)
    args = (x,) if kind == "causal" else (x, MASKS[kind])
    edge = right_in_both(Layers(kind == "causal"), *args)
    assert edge.report.ops["forward"].get("SELECT_V2", 0) <= 1
