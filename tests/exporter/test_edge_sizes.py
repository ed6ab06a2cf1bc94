"""Sizes 0 and 1: a graph that torch traced at other sizes is tried there first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.runtime.inputs import InputError
from tpu_export.runtime.program import load

X = torch.arange(12.0).reshape(3, 4)


class Alone(torch.nn.Module):
    """Computes something else where the batch is 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 1:
            return x * 2
        return x - x.mean(0)


class Counting(torch.nn.Module):
    """Asks whether the batch is 1, to the same effect; counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.python = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.python += 1
        return x.sum(0) if x.size(0) > 1 else x[0].clone()


class Single(torch.nn.Module):
    """Computes something else for one number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 5 if x.numel() == 1 else x


def whole_rows(x: torch.Tensor) -> Any:
    rows = x @ torch.ones(4, 2)
    return rows, rows.sum(), torch.cat([rows, torch.ones(1, 2)]), x.mean(0)


def largest(x: torch.Tensor) -> torch.Tensor:
    return x.amax(0)


def dims(**bounds: int) -> Any:
    return ({0: Dim("b", **bounds)},)


def test_another_answer_at_1_is_a_constraint(tmp_path: Path) -> None:
    captured = capture(Alone(), (X,), dynamic_shapes=dims(max=9))
    assert captured.signature.constraints == ("b != 1",)
    program = load(captured.lower().save(tmp_path / "m.tpuexe"), device="cpu")
    np.testing.assert_allclose(program(X.numpy()[:2]), Alone()(X[:2]))
    with pytest.raises(InputError, match="captured for b != 1, given b = 1"):
        program(X.numpy()[:1])


def test_another_answer_at_a_promised_1_is_refused() -> None:
    with pytest.raises(DimRangeError, match=r"asks about b at test_edge_sizes.py:\d+"):
        capture(Alone(), (X,), dynamic_shapes=dims(min=1, max=9))


def test_another_answer_where_all_are_1() -> None:
    both = ({0: Dim("b", max=9), 1: Dim("t", max=9)},)
    captured = capture(Single(), (X,), dynamic_shapes=both)
    assert captured.signature.constraints == ("b*t != 1",)


@pytest.mark.parametrize("strict", [False, True])
def test_strict_mode_asks_too(strict: bool) -> None:
    captured = capture(Alone(), (X,), dynamic_shapes=dims(max=9), strict=strict)
    assert captured.signature.constraints == ("b != 1",)


def test_a_question_to_the_same_effect_costs_no_size_and_no_state() -> None:
    model = Counting()
    captured = capture(model, (X,), dynamic_shapes=dims(min=1, max=9))
    assert captured.signature.constraints == ()
    assert captured.signature.dims[0].minimum == 1
    assert model.calls == 0
    assert captured.program.state_dict["calls"] == 0


def test_weights_without_values_leave_1_out() -> None:
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), Alone())
    captured = capture(model, (X.to("meta"),), dynamic_shapes=dims(max=9))
    assert captured.signature.constraints == ("b != 1",)


@pytest.mark.parametrize("model", [whole_rows, Counting()])
def test_an_empty_batch(model: Callable[..., Any], tmp_path: Path) -> None:
    captured = capture(whole_rows, (X,), dynamic_shapes=dims(min=0, max=9))
    assert captured.signature.dims[0].minimum == 0
    program = load(captured.lower().save(tmp_path / "m.tpuexe"), device="cpu")
    for size in (0, 1, 3):
        got, want = program(X.numpy()[:size]), whole_rows(X[:size])
        for mine, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs, equal_nan=True)


@pytest.mark.parametrize(
    ("model", "bounds"),
    [(largest, {"max": 9}), (whole_rows, {"min": 1, "max": 9}), (whole_rows, {})],
)
def test_no_empty_batch(model: Any, bounds: dict[str, int]) -> None:
    captured = capture(model, (X,), dynamic_shapes=dims(**bounds))
    assert captured.signature.dims[0].minimum == 1


def test_an_empty_batch_of_a_saved_program(tmp_path: Path) -> None:
    captured = capture(whole_rows, (X,), dynamic_shapes=dims(max=9))
    torch.export.save(captured.program, tmp_path / "m.pt2")
    again = capture(tmp_path / "m.pt2")
    assert [dim.minimum for dim in again.signature.dims] == [0]
