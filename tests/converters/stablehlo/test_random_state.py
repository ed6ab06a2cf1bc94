"""The random state: a slot of its own, one key a draw, wherever the draw is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tpu_export.runtime.signature import RNG


class Named(nn.Module):
    """A buffer called as one might call the seed's slot, which counts calls."""

    def __init__(self, draws: bool) -> None:
        super().__init__()
        self.draws = draws
        self.register_buffer("rng", torch.zeros(2, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        self.rng.add_(1)
        return x + torch.rand(3) if self.draws else x + self.rng.sum()


class Kept(Named):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand(3) * 0 + self.rng.sum()


def test_a_buffer_named_rng_beside_the_seed(run_module: Any) -> None:
    _, _, program = run_module(Named(draws=True), (torch.zeros(3),))
    x = np.zeros(3, np.float32)
    first, second = program(x), program(x)
    assert not np.array_equal(first, second)
    assert set(program.state) == {"rng", RNG}
    np.testing.assert_array_equal(program.state["rng"], [2, 2])
    program.seed(7)
    third = program(x)
    program.seed(7)
    np.testing.assert_array_equal(program(x), third)
    np.testing.assert_array_equal(program.state["rng"], [4, 4])
    assert (program.state["rng"]).dtype == np.int32


def test_a_buffer_named_rng_that_stays_as_it_is(check_module: Any) -> None:
    lowered = check_module(Kept(draws=True), (torch.zeros(3),))
    assert "rng" in lowered.program.weights
    assert [slot.name for slot in lowered.program.signature.state] == [RNG]


def test_a_buffer_named_rng_is_no_seed(check_module: Any, run_module: Any) -> None:
    check_module(Named(draws=False), (torch.zeros(3),), calls=2)
    _, _, program = run_module(Named(draws=False), (torch.zeros(3),))
    before = program.state["rng"]
    program.seed(3)
    np.testing.assert_array_equal(program.state["rng"], before)


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def draw(x: Tensor) -> Tensor:
    return x + torch.rand(SIZE)


def branches(x: Tensor) -> Tensor:
    return torch.cond(x.sum() >= 0, draw, lambda a: a - 1, (x,))


def dropped(x: Tensor) -> Tensor:
    x = x + 1
    return torch.cond(x.sum() > 0, lambda a: F.dropout(a, 0.5, True), torch.relu, (x,))


def loop(x: Tensor) -> Tensor:
    def step(i: Tensor, rows: Tensor) -> Any:
        return i + 1, torch.cat([rows[1:], torch.rand(1, SIZE)])

    rows = torch.zeros(3, SIZE) + x
    return while_loop(lambda i, _: i < 3, step, (torch.tensor(0), rows))[1]


def loop_until(x: Tensor) -> Any:
    return while_loop(
        lambda i, _: (i < 50) & (torch.rand(()) < 0.8),
        lambda i, a: (i + 1, a + 1),
        (torch.tensor(0), x.clone()),
    )


def scanned(x: Tensor) -> Tensor:
    return scan(lambda c, y: (draw(c), draw(y)), x.clone(), x.expand(3, SIZE))[1]


def mapped(x: Tensor) -> Tensor:
    return map_(draw, x.expand(3, SIZE).contiguous())


def nested(x: Tensor) -> Tensor:
    def step(c: Tensor, y: Tensor) -> Any:
        return c + 1, torch.cond(c.sum() >= 0, draw, lambda a: a.clone(), (y,))

    return scan(step, x.clone(), x.expand(3, SIZE))[1]


def after(x: Tensor) -> Tensor:
    return torch.stack([branches(x), draw(x), branches(x)])


SIZE = 64
INSIDE = [branches, dropped, loop, scanned, mapped, nested, after]


@pytest.mark.parametrize("function", INSIDE, ids=lambda f: f.__name__)
def test_draws_inside_control_flow(run_module: Any, function: Any) -> None:
    _, lowered, program = run_module(Fn(function), (torch.zeros(SIZE),))
    assert [slot.name for slot in lowered.program.signature.state] == [RNG]
    x = np.zeros(SIZE, np.float32)
    program.seed(1)
    first, second = program(x), program(x)
    assert not np.array_equal(first, second), "the seed does not advance"
    program.seed(1)
    np.testing.assert_array_equal(program(x), first)
    rows = np.array(first).reshape(-1, SIZE)
    assert len(np.unique(rows, axis=0)) == len(rows), "a key is used twice"
    if function is dropped:
        assert set(np.unique(first)) == {0, 2}
    else:
        assert rows.min() >= 0
        assert rows.max() < 1
        assert abs(rows.mean() - 0.5) < 0.15


def test_a_branch_that_draws_nothing_keeps_the_key(run_module: Any) -> None:
    _, _, program = run_module(Fn(branches), (torch.zeros(SIZE),))
    x = np.full(SIZE, -1, np.float32)
    np.testing.assert_array_equal(program(x), x - 1)
    np.testing.assert_array_equal(program.state[RNG], [0, 0])


def test_a_condition_that_draws(run_module: Any) -> None:
    _, _, program = run_module(Fn(loop_until), (torch.zeros(SIZE),))
    x = np.zeros(SIZE, np.float32)
    counts = []
    for _ in range(40):
        count, total = program(x)
        assert (total == count).all()
        counts.append(int(count))
    assert len(set(counts)) > 3
    assert 2 < np.mean(counts) < 7  # 0.8 / 0.2


QUIET: dict[str, Callable[[Tensor], Any]] = {
    "dropout of eval": lambda x: torch.cond(
        x.sum() > 0, lambda a: F.dropout(a, 0.5, False) + 1, torch.relu, (x,)
    ),
    "a loop": lambda x: while_loop(
        lambda i, _: i < 3, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x)
    ),
    "a map": lambda x: map_(torch.sin, x[None]),
}


@pytest.mark.parametrize("name", QUIET)
def test_no_draw_no_seed(check_module: Any, name: str) -> None:
    lowered = check_module(Fn(QUIET[name]), (torch.ones(SIZE),))
    assert lowered.program.signature.state == ()
    assert "ui32" not in lowered.text()
