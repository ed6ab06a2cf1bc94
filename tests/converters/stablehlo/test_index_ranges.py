"""Inputs used as indices: the range is torch's own, and what it refuses is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from tpu_export.converters.stablehlo.index_ranges import index_ranges
from tpu_export.exporter.capture import capture
from tpu_export.runtime.inputs import IndexRangeError

aten = torch.ops.aten


class Model(nn.Module):
    """A table of 10 rows, read by a function of it."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(10, 4))
        self.embed = nn.Embedding(7, 3)
        self.function = function

    def forward(self, *args: Any) -> torch.Tensor:
        return self.function(self, *args)


IDS = torch.tensor([[1, 2, 0], [3, 4, 5]])
READS: dict[str, tuple[Callable[..., Any], tuple[int, int]]] = {
    "embedding": (lambda m, i: m.embed(i), (0, 6)),
    "bag": (lambda m, i: bag(m, i, padding_idx=2), (0, 6)),
    "bag of maxima": (lambda m, i: bag(m, i, mode="max"), (0, 6)),
    "bag that may end early": (lambda m, i: bag(m, i, include_last_offset=True), ()),
    "int32": (lambda m, i: m.embed(i.int().int()), (0, 6)),
    "index_select": (lambda m, i: m.table.index_select(0, i.reshape(-1)), (0, 9)),
    "index": (lambda m, i: m.table[i], (-10, 9)),
    "index in axis 1": (lambda m, i: m.table[:, i[:, :2].clone()[0:2].view(-1) * 0], ()),
    "two indices": (lambda m, i: m.table[i, torch.tensor([0, 1, 2])], (-10, 9)),
    "both": (lambda m, i: m.table[i, i % 4] + m.table[i, 0], (-10, 9)),
    "gather": (lambda m, i: m.table.gather(0, i), (0, 9)),
    "take": (lambda m, i: m.table.take(i), (-40, 39)),
    "moved": (lambda m, i: m.embed(i.t()[None].expand(2, 3, 2).reshape(-1)), (0, 6)),
    "plus": (lambda m, i: m.embed((i + 2) - 1), (-1, 5)),
    "the tightest": (lambda m, i: m.embed(i).sum() + m.table[i].sum(), (0, 6)),
    "a part": (lambda m, i: m.embed(i[:, 1:]), ()),
    "merged": (lambda m, i: m.embed(torch.where(i > 2, 0, i)), ()),
    "clamped": (lambda m, i: m.embed(i.clamp(0, 6)), ()),
    "remainder": (lambda m, i: m.embed(i % 7), ()),
    "cut to int32": (lambda m, i: m.embed(i.int()), ()),
    "written before": (lambda m, i: m.embed(i.clone().fill_(2)), ()),
    "written through a view": (lambda m, i: _written(m, i.clone()), ()),
    "no index": (lambda m, i: m.table[:2, :3] * i, ()),
    "of no rows": (lambda m, i: m.table.new_zeros(3, 0)[i].sum(), ()),
}  # fmt: skip


def bag(m: Model, ids: torch.Tensor, **options: Any) -> torch.Tensor:
    flat, starts = ids.reshape(-1), torch.tensor([0, 2, 2, 6])
    return nn.functional.embedding_bag(flat, m.embed.weight, starts, **options)


def _written(m: Model, ids: torch.Tensor) -> torch.Tensor:
    ids[:, 0].fill_(1)
    return m.embed(ids)


def found(model: nn.Module, *args: Any, **options: Any) -> list[tuple[str, int, int]]:
    captured = capture(model.eval(), args, **options)
    ranges = index_ranges(captured.program, captured.signature)
    return [(r.name, r.low, r.high) for r in ranges]


def raises(model: nn.Module, ids: torch.Tensor) -> bool:
    try:
        model(ids)
    except IndexError:
        return True
    except RuntimeError as error:
        return "out of bounds" in str(error) or "Expected idx >= 0" in str(error)
    return False


@pytest.mark.parametrize("name", READS)
def test_ranges_are_where_eager_raises(name: str) -> None:
    function, want = READS[name]
    model = Model(function)
    ids = IDS.int() if name == "int32" else IDS
    ranges = found(model, ids)
    assert [r[1:] for r in ranges] == ([want] if want else [])
    if not want:
        return
    for at in range(6):
        changed = ids.clone()
        for value, wrong in (
            (want[0], False),
            (want[1], False),
            (want[0] - 1, True),
            (want[1] + 1, True),
        ):
            changed.view(-1)[at] = value
            assert raises(model, changed) == wrong, (at, value)


def test_what_is_refused(run_module: Any) -> None:
    model = Model(lambda m, i: m.embed(i)).eval()
    _, lowered, program = run_module(model, (IDS,))
    (wanted,) = lowered.program.signature.ranges
    assert wanted.because == "embed.weight has 7 rows"
    with pytest.raises(
        IndexRangeError, match=r"args_0 holds 7; embed\.weight has 7 rows: 0 … 6"
    ):
        program(IDS.numpy() + 2)
    with pytest.raises(IndexRangeError, match="args_0 holds -1;"):
        program(IDS.numpy() - 1)


def test_negative_places_still_count_from_the_end(check_module: Any) -> None:
    check_module(
        Model(lambda m, i: m.table[i]).eval(),
        (IDS,),
        more=[(-1 - IDS,), (IDS - 10 + 2,)],
    )


@pytest.mark.parametrize(
    "function", [lambda m, i, x: x[i], lambda m, i, x: x.gather(0, i[:, None])]
)
def test_a_table_of_a_dynamic_size_gives_no_range(function: Any) -> None:
    x = torch.randn(5, 2)
    shapes = ((None, {0: Dim("rows", min=2, max=9)}),)
    assert found(Model(function), torch.tensor([1, 0]), x, dynamic_shapes=shapes) == []


def test_dynamic_ids_of_a_fixed_table() -> None:
    shapes = (({0: Dim("batch", max=9), 1: Dim("seq", max=9)},),)
    model = Model(lambda m, i: m.embed(i.view(-1, i.shape[-1])))
    assert found(model, IDS, dynamic_shapes=shapes) == [("args_0", 0, 6)]
