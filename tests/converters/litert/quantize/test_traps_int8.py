"""Files of int8 that LiteRT would compute wrong, or not load: made right, or refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert.engines import ENGINES, Calls, run_calls
from tpu_export.converters.litert.model import LiteRtModel
from tpu_export.converters.litert.quantize import Quantized, quantize, read_recipe
from tpu_export.parity.litert import to_litert
from tpu_export.parity.snr import snr


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.permute(0, 2, 3, 1)
        return y, y.mean((1, 2))


class Gather(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.mT.clone()
        return y, y[:, [3, 1, 2, 0]]


class Total(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y.sum()


class Difference(nn.Module):
    """Tied weights: the output is used with the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.tanh(x @ self.weight.T) @ self.weight
        return y, y - x


class Minus(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.mT.clone()
        return y, y - 3.0


class Joined(nn.Module):
    """An output that a concatenation takes on a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.linear(x)
        return y, y.sum(1), torch.cat((y, torch.full((1, 1, 4), 3.0)), 1)


class Largest(nn.Module):
    """Where the largest is, as code without argmax tells."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.softmax(-1)
        return torch.where(y == y.amax(-1, keepdim=True), x, torch.zeros(()))


def _quantized(
    model: nn.Module, *shape: int, recipe: str = "static-int8"
) -> tuple[LiteRtModel, Quantized, list[dict[str, np.ndarray]]]:
    torch.manual_seed(0)
    plain = to_litert(model.eval(), (torch.randn(*shape),))
    (signature,) = plain.signatures.values()
    rng = np.random.default_rng(0)
    calls = [
        {s.name: rng.standard_normal(s.shape, np.float32) for s in signature.inputs}
    ]
    return plain, quantize(plain, read_recipe(recipe), {"forward": calls}), calls


def _worst(
    plain: LiteRtModel, done: Quantized, calls: list[dict[str, np.ndarray]]
) -> float:
    """Return the least decibels of an output against the float file, in both engines."""
    call = Calls("forward", calls)
    (truth,) = run_calls(plain.path, "interpreter", [call])
    found = [run_calls(done.model.path, engine, [call])[0] for engine in ENGINES]
    return min(
        snr(*(np.stack([step[name] for step in run]) for run in (own, truth)))
        for own in found
        for name in truth[0]
    )


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Mean(), (2, 3, 4, 5)),
        (Gather(), (3, 4, 5)),
        (Total(), (2, 3)),
        (Difference(), (2, 6)),
        (Minus(), (3, 4)),
        (Joined(), (1, 5, 6)),
        (Largest(), (4, 9)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
@pytest.mark.parametrize("recipe", ["static-int8", "static-int16"])
def test_ops_that_lost_their_integers(
    model: nn.Module, shape: tuple[int, ...], recipe: str
) -> None:
    assert _worst(*_quantized(model, *shape, recipe=recipe)) > 25


class Batches(nn.Module):
    """A product of batches with a weight, as of experts; on the left or the right."""

    def __init__(self, *shape: int, left: bool = False) -> None:
        super().__init__()
        self.weight, self.left = nn.Parameter(torch.randn(*shape)), left

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight @ x if self.left else x @ self.weight


@pytest.mark.parametrize("recipe", ["static-int8", "static-int16", "dynamic-int8"])
@pytest.mark.parametrize("left", [False, True])
def test_a_product_of_batches_with_a_weight(left: bool, recipe: str) -> None:
    weight, x = (3, 4, 30), (3, 30, 12)
    shapes = (weight, x) if left else (x, weight)
    model = Batches(*shapes[0], left=left)
    assert _worst(*_quantized(model, *shapes[1], recipe=recipe)) > 30


class Chosen(nn.Module):
    """A product with a constant on the right that is no layer's weight."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(4, 12).index_add(1, torch.arange(30) % 12, x)


class Infinite(nn.Module):
    """Activations that are not finite: no scale holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return torch.where(x > 0, y, (1 / torch.relu(y)).clamp(max=3.0))


@pytest.mark.parametrize("model", [Chosen(), Infinite()], ids=["Chosen", "Infinite"])
def test_other_traps(model: nn.Module) -> None:
    shape = (4, 30) if isinstance(model, Chosen) else (4, 8)
    assert _worst(*_quantized(model, *shape)) > 20


def test_ranges_are_those_of_all_calls() -> None:
    """Not an average that the first call weighs most in."""
    torch.manual_seed(0)
    plain = to_litert(nn.Sequential(nn.Linear(8, 8)).eval(), (torch.randn(4, 8),))
    ((name,),) = ([s.name for s in v.inputs] for v in plain.signatures.values())
    draw = np.random.default_rng(0)
    calls = [{name: k * draw.standard_normal((4, 8), np.float32)} for k in (1, 2, 9, 3)]
    done = quantize(plain, read_recipe("static-int8"), {"forward": calls}, lint="off")
    assert _worst(plain, done, calls[2:3]) > 30


class Inner(nn.Module):
    """Ops inside of a reduction: they are not calibrated."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.avg_pool2d(2 * x, 3, 2, padding=1, ceil_mode=True)
        return y.cumsum(-1)


def test_what_a_reduction_computes_stays_in_float() -> None:
    assert _worst(*_quantized(Inner(), 1, 2, 8, 8)) > 30
