"""64-bit integers in .tflite: in 32 bits where they fit, right in both engines."""

from __future__ import annotations

from typing import Any

import pytest
import torch

TABLE = torch.randn(50, 4)


def test_positions_and_ids(right_in_both: Any) -> None:
    """Of 64 bits, LiteRT's converter refuses the division."""

    def function(ids: torch.Tensor, x: torch.Tensor) -> Any:
        places = torch.arange(ids.shape[1])
        y = torch.where(ids > 7, ids, -ids)
        return (
            TABLE[ids] + TABLE[places], y % 5, y // 3, y.cumsum(1), ids.sum(1), x.argmax(-1),
            y.gather(1, ids % 3), torch.cat([y, ids], 1), y.abs().max(1).values,
            places[:, None] >= places, torch.div(y, -4, rounding_mode="trunc"),
            y.clamp(-3, 9), y.float().mean(), ids * 1000 + places, ids == y,
        )  # fmt: skip

    ids = torch.tensor([[1, 49, 0, 8], [3, 7, -50, 5]])
    right_in_both(function, ids, torch.randn(2, 9))


def test_what_does_not_fit_stays(right_in_both: Any) -> None:
    x = torch.tensor([0, -1, 2**31, -(2**31) - 1, 2**62, 2**63 - 1])
    right_in_both(lambda x: (x * 2654435761, x + 1, x - torch.arange(6)), x)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_products_of_matrices(right_in_both: Any, kind: torch.dtype) -> None:
    x = torch.randint(0, 100, (2, 3, 5)).to(kind)
    right_in_both(lambda x, y: (x @ y.mT, x[0] @ y[0, 0], x.int() @ y.mT.int()), x, x)


def test_weights_of_rank_0_that_are_computed_from_others(right_in_both: Any) -> None:
    scale = torch.nn.Parameter(torch.tensor(3.0))
    right_in_both(
        lambda x: x * (scale * 2).exp() + scale.detach().sqrt(), torch.ones(3)
    )
