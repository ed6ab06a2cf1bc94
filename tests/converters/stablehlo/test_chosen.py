"""x[mask] with a computed mask: written back, or reduced, without its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.exporter.capture import capture


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("sel", torch.tensor([True, False, True, True]))
        self.linear = nn.Linear(3, 3)
        self.norm = nn.LayerNorm(3)
        self.table = nn.Embedding(5, 3)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def put_rows(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.clone(), b[:, 0] > 0
    a[keep] = b[keep]
    return a


def put_by_the_mask_written_twice(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[(a > 0) & (b > 0)] = b[(a > 0) & (b > 0)]
    return a


def put_by_a_buffer(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[m.sel] = b[m.sel]
    return a


def put_into_a_view(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[:, 1][m.sel] = b[:, 2][m.sel]
    return a


def put_on_a_later_axis(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.clone(), b[0] > 0
    a[:, keep] = b[:, keep] * 2
    return a


def put_into_another_dtype(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.double(), a > 0
    a[keep] = b[keep].double()
    return a


def put_with_accumulate(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    keep = a > 0
    return a.index_put((keep,), b[keep], accumulate=True)


def put_flags(m: Fn, a: Tensor, b: Tensor) -> Any:
    flags, found = torch.zeros(4, dtype=torch.bool), a[:, 0] > 0
    flags[m.sel] = found[m.sel]
    return flags, flags ^ found, flags.any()


def add_one(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.clone(), a > 0
    a[keep] += 1
    return a


def multiply(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.clone(), a > 0
    a[keep] *= b[keep]
    return a


def of_an_expression(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.clone(), a[:, 0] > 0
    row = torch.tensor([1.0, 2.0, 3.0])
    a[keep] = torch.sigmoid(b[keep]) * row + a[keep].clamp(max=0.5)
    return a


def through_a_layer(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.clone(), a[:, 0] > 0
    a[keep] = m.norm(F.relu(m.linear(b[keep])))
    return a


def through_a_table(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, keep = a.clone(), a[:, 0] > 0
    ids = (b[:, 0].abs() * 2).long().clamp(max=4)
    a[keep] = m.table(ids[keep])
    return a


def of_tokens(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    x, keep = torch.stack([a, b]), torch.stack([a, b])[..., 0] > 0
    x[keep] = m.linear(x[keep])
    return x


def write_scalars(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a, b = a.clone(), b.clone()
    a[a > 0] = 1.5
    b[b[:, 0] > 0] = torch.tensor([1.0, 2.0, 3.0])
    return a + b


def another_mask_by_then(m: Fn, a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    positive = b[a > 0]
    a.add_(1)
    a[a > 0] = positive
    return a


WRITES = [
    put_rows, put_by_the_mask_written_twice, put_by_a_buffer, put_into_a_view,
    put_on_a_later_axis, put_into_another_dtype, put_with_accumulate, put_flags, add_one,
    multiply, of_an_expression, through_a_layer, through_a_table, of_tokens, write_scalars,
]  # fmt: skip


def given(sign: int = 1) -> tuple[Tensor, Tensor]:
    return torch.randn(4, 3) * sign, torch.randn(4, 3)


@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
def test_written_back(check_module: Any, function: Any) -> None:
    nothing, everything = torch.full((4, 3), -1.0), torch.full((4, 3), 1.0)
    more = [given(), (nothing, nothing), (everything, everything)]
    check_module(Fn(function), given(), more=more)


REDUCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(),
    "sum of doubles": lambda x: x.sum(dtype=torch.float64),
    "mean": lambda x: x.mean(),
    "half mean": lambda x: x.bfloat16().mean(),
    "prod": lambda x: x.prod(),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "integers": lambda x: ((x * 8).long().max(), (x * 8).int().sum()),
    "any, all": lambda x: ((x > 1).any(), (x > 1).all(), (x > 1).sum()),
    "count": lambda x: (x.shape[0], x.sum()),
    "mean by hand": lambda x: x.sum() / x.shape[0],
    "squares": lambda x: ((x - 1) ** 2).mean(),
}
SELECTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "values": lambda x: x[x > 0],
    "rows": lambda x: x[x[:, 0] > 0],
    "columns": lambda x: x[:, x[0] > 0],
    "masked_select": lambda x: x.masked_select(x[0] > 0),
}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reduced(check_module: Any, selection: str, reduction: str) -> None:
    choose, reduce = SELECTIONS[selection], REDUCTIONS[reduction]
    x = torch.randn(4, 3)
    x[0, 0] = 2.0
    check_module(Fn(lambda _, x: reduce(choose(x))), (x,), more=[(x.abs(),)])


def test_a_mean_of_nothing_is_nan_and_hidden_nan_stay_hidden(check_module: Any) -> None:
    module = Fn(lambda _, x: (x[x > 9].mean(), x.sqrt()[x > 0].sum(), x[x > 9].sum()))
    check_module(module, (torch.tensor([-1.0, 4.0, -2.0]),))


REFUSED: dict[str, Callable[..., Any]] = {
    "returned": lambda m, a, b: a[a > 0] + 1,
    "returned among others": lambda m, a, b: (a, [b[a > 0]]),
    "two masks": lambda m, a, b: (a[a > 0].sum(), a.index_put((a > 0,), b[b > 0])),
    "another mask by then": another_mask_by_then,
    "sorted": lambda m, a, b: a[a > 0].sort().values.sum(),
    "scanned": lambda m, a, b: a[a > 0].cumsum(0)[0],
    "softmax over the unknown axis": lambda m, a, b: a[a > 0].softmax(0).sum(),
    "in the branch of a condition": lambda m, a, b: torch.cond(
        a.sum() > 0, lambda x, y: x[y > 0].sort().values.sum(), lambda x, y: x.sum(), (a, b)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_the_size_is_refused_for_litert(name: str) -> None:
    with pytest.raises(UnsupportedOptionError) as caught:
        capture(Fn(REFUSED[name]), given()).lower(target="litert")
    message = str(caught.value)
    assert "has a shape that depends on the data" in message
    assert "at aten.index.Tensor in the root (test_chosen.py:" in message


class Rows(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, keep = x.clone(), x[:, 0] > 0
        mean = x[keep].mean()
        x[keep] += mean
        return x, mean


def test_a_dynamic_number_of_rows(check_module: Any) -> None:
    check_module(
        Rows(),
        (torch.randn(8, 3),),
        more=[(torch.randn(20, 3),), (torch.ones(1, 3),)],
        dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=64)},),
    )
