"""The random state: a slot of its own, one key a draw, wherever the draw is."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
