"""Half types inside a program: float32 that is rounded where torch rounds, in both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops import scan

from tpu_export.converters.litert.errors import LiteRtUnsupportedOpsError
from tpu_export.converters.stablehlo.ops.ranking import LiteRtUnsupportedError

NAN, INF = float("nan"), float("inf")
X = torch.randn(4, 8) * 3
ODD = torch.tensor([[NAN, 1e5, -1e39, INF, 3e-8, -0.0, 1.00390625, 65519.0]])
HALVES = pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])


def chain(x: Tensor) -> Tensor:
    return (x * 1.7 + 3).sqrt() - x / 7


def ordered(x: Tensor) -> list[Tensor]:
    best = [x.argmax(1), x.argmin(0), *x.max(1), *x.min(0), *torch.topk(x, 3)]
    rest = [*torch.sort(x, stable=True), *torch.cummax(x, 1), x.amax(), x.median()]
    return [*best, *rest, x.cumsum(1), x.cumprod(0), x.logcumsumexp(1)]


def compared(x: Tensor) -> list[Tensor]:
    whole = [x.round(), x.floor(), x % 2.5, x // 0.3, x.long(), x.sign()]
    return [x == x.mT.mT, x > 0.1, torch.where(x > 0, x, -x), x.clamp(-1, 2), *whole]


def summed(x: Tensor) -> list[Tensor]:
    count = torch.ones(5000, dtype=x.dtype).cumsum(0)[-1] + x.sum()
    return [x.sum(1), x.mean(0), x.std(1), x.softmax(1), count]


def written(x: Tensor) -> list[Tensor]:
    places = torch.tensor([[1, 0, 1, 2, 3, 1, 0, 0]])
    return [
        x.scatter_add(0, places, x),
        x.gather(0, places),
        x.index_fill(1, places[0], 2),
    ]


def controlled(x: Tensor) -> list[Tensor]:
    (last, rows) = scan(lambda h, y: (h * 0.5 + y, h * y), x[0] * 0, x, dim=0)
    return [torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), last, rows]


def activated(x: Tensor) -> list[Tensor]:
    names = ["gelu", "silu", "hardswish", "softplus", "elu", "tanh", "sigmoid"]
    return [getattr(F, name)(x) for name in names]


@HALVES
@pytest.mark.parametrize(
    "function", [chain, ordered, compared, summed, written, controlled, activated]
)
def test_ops(
    right_in_both: Any, half: torch.dtype, function: Callable[..., Any]
) -> None:
    def through(x: Tensor) -> list[Tensor]:
        found = function(x.to(half))
        listed = found if isinstance(found, list) else [found]
        return [y.float() if y.is_floating_point() else y for y in listed]

    right_in_both(through, X)


@HALVES
def test_numbers_that_a_half_type_does_not_hold(
    right_in_both: Any, half: torch.dtype
) -> None:
    right_in_both(lambda x: (x.to(half).float(), (x.to(half) * 1).float()), ODD)


class Weights(nn.Module):
    def __init__(self, half: torch.dtype) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.norm, self.table = nn.BatchNorm2d(4), nn.Embedding(9, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.eval().to(half)

    def forward(self, x: Tensor, i: Tensor) -> Tensor:
        y = F.relu(self.norm(self.convolution(x.to(self.table.weight.dtype))))
        tokens = torch.cat([self.table(i), y.flatten(2).mT.reshape(1, -1, 8)], 1)
        return self.encoder(tokens).float()


@HALVES
def test_weights(right_in_both: Any, half: torch.dtype) -> None:
    """Sums in another order are other neighbours of a half type now and then."""
    torch.manual_seed(0)
    model = Weights(half)
    inputs = torch.randn(1, 3, 4, 4), torch.randint(0, 9, (1, 3))
    found = right_in_both(model, *inputs, rtol=5e-2)
    assert "BATCH_MATMUL" in found.report.ops["forward"]


def test_autocast(right_in_both: Any) -> None:
    layer = nn.Linear(8, 4)

    def forward(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = F.softmax(layer(x) * 2, -1)
        return y.float() @ torch.ones(4, 2)

    right_in_both(forward, X, rtol=1e-2)


@HALVES
def test_inputs_and_results_are_refused(right_in_both: Any, half: torch.dtype) -> None:
    with pytest.raises(LiteRtUnsupportedOpsError, match="input 'args_0'"):
        right_in_both(lambda x: x.float() * 2, X.to(half))
    with pytest.raises(LiteRtUnsupportedOpsError, match="output 'output_0'"):
        right_in_both(lambda x: x.to(half), X)


def test_bits_are_refused(right_in_both: Any) -> None:
    with pytest.raises(LiteRtUnsupportedError, match=r"no bits of .*aten\.view"):
        right_in_both(lambda x: x.bfloat16().view(torch.int16), X)
