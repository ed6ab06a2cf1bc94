"""Models of integers through the artifact: equal to eager, with what is narrowed and what not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower

LIMIT = 2**31


class Model(nn.Module):
    """A function of inputs, with an embedding of 50 rows."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 4)
        self.register_buffer("count", torch.tensor(LIMIT - 2))
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self, *args)


def positions(m: Model, ids: torch.Tensor) -> Any:
    places = torch.arange(ids.shape[1])
    mask = places[:, None] >= places[None]
    return m.embed(ids) + m.embed(places), mask, places + 1


def mixed(m: Model, ids: torch.Tensor) -> Any:
    x = m.embed(ids)
    y = torch.where(ids > 7, ids, -ids)
    return (
        y.cumsum(1), x.argmax(-1), x.topk(2).indices, ids.sort(1).values,
        ids.argsort(stable=True, dim=1),
        y % 5, y // -3, torch.div(y, 4, rounding_mode="trunc"), y.fmod(3), ids.sum(), ids.prod(1),
        y.abs().max(1).values, ids.bitwise_and(12), ids << 2, y.float().mean(), y.clamp(-3, 9),
        torch.cat([y, ids], 1), y.gather(1, ids % 3), nn.functional.one_hot(ids, 50), ids == y,
    )  # fmt: skip


def hashed(m: Model, ids: torch.Tensor, x: torch.Tensor) -> Any:
    return (
        x * 2654435761 % 2**32,
        (x * 31 + 7) ^ (x >> 5),
        x * x,
        ids * 2654435761 % 2**32,
        ids**9,
    )


def counting(m: Model, ids: torch.Tensor) -> Any:
    """A buffer of 64 bits that passes the end of 32."""
    m.count.add_(1)
    return m.count + ids, m.count % 1000


IDS = torch.tensor([[1, 49, 0], [3, 4, 5]])
BIG = torch.tensor([0, -1, 2**31, -(2**31) - 1, 2**62, -(2**63), 2**63 - 1])


@pytest.mark.parametrize(
    ("function", "args"),
    [(positions, (IDS,)), (mixed, (IDS,)), (hashed, (IDS, BIG)), (counting, (IDS,))],
)
def test_models(function: Any, args: Any, check_module: Any) -> None:
    model = Model(function).eval()
    shuffled = tuple(a.flip(-1) for a in args)
    check_module(model, args, more=[shuffled], calls=2)


def test_positions_and_ids_are_32_bits() -> None:
    captured = capture(Model(positions).eval(), (IDS,))
    for target in ("xla", "litert"):
        integers = lower(captured, target=target).program.integers
        assert integers
        assert [t for t in integers if not t.narrowed] == []


def test_kept_tensors_say_why() -> None:
    rows = lower(capture(Model(counting).eval(), (IDS,))).program.integers
    assert {t.reason for t in rows if not t.narrowed} >= {
        "state count can be any number"
    }
    rows = lower(capture(Model(hashed).eval(), (IDS, BIG))).program.integers
    assert "input args_1 can be any number" in {t.reason for t in rows}
    places = {t.place for t in rows if t.reason}
    assert any("aten.mul.Tensor/test_integer_models.py:" in place for place in places)


@pytest.mark.parametrize("maximum", [40, None])
def test_dynamic_positions(maximum: int | None, check_module: Any) -> None:
    shapes = (({0: Dim("batch", max=8), 1: Dim("seq", min=2, max=maximum)},),)
    model = Model(positions).eval()
    ends = [torch.randint(0, 50, (b, s)) for b, s in ((1, 2), (8, 40), (3, 17))]
    lowered = check_module(
        model, (IDS,), more=[(i,) for i in ends], dynamic_shapes=shapes
    )
    kept = {t.reason for t in lowered.program.integers if not t.narrowed}
    assert kept == ({"dimension seq has no maximum"} if maximum is None else set())


def turns(ids: torch.Tensor, n: torch.Tensor) -> Any:
    def go(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return i < n.sum()

    def step(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return i + 1, x * 3 + i

    return torch.while_loop(go, step, (torch.tensor(0), ids))


def choice(ids: torch.Tensor, n: torch.Tensor) -> Any:
    return (
        torch.cond(n.sum() > 3, lambda x: x % 5 - 9, lambda x: x // 7 * 2**20, (ids,))
        * 4
    )


@pytest.mark.parametrize("function", [turns, choice])
def test_control_flow(function: Any, check_module: Any) -> None:
    class Flow(nn.Module):
        def forward(self, ids: torch.Tensor, n: torch.Tensor) -> Any:
            return function(ids, n)

    many = [(IDS, torch.tensor([50])), (BIG[:6].view(2, 3), torch.tensor([45]))]
    check_module(Flow(), (IDS, torch.tensor([1])), more=many)
