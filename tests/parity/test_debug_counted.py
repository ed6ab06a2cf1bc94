"""Debug mode on sizes that the data decides: torch's, and ours are compared with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
import torch

from tpu_export.converters.stablehlo import counting, registry
from tpu_export.parity.debug import debug

aten = torch.ops.aten
X = torch.tensor([[1.0, -2, 0], [3, 0, 5]])
I = torch.tensor([1, 2, 5, 1])  # noqa: E741
N = torch.tensor(2)

ALONE: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "nonzero": (lambda x: x.nonzero(), (X,)),
    "nonzero of nothing": (lambda x: x.nonzero(), (X * 0,)),
    "argwhere": (lambda x: torch.argwhere(x), (X,)),
    "where": (lambda x: torch.where(x > 0), (X,)),
    "unique": (lambda i: torch.unique(i, return_counts=True), (I,)),
    "bincount": (lambda i: torch.bincount(i), (I,)),
    "repeat_interleave": (lambda i: torch.repeat_interleave(i), (I,)),
    "rows": (lambda x: x[x[:, 0] > 1], (X,)),
    "a reader that needs the size": (lambda x: x[x > 0].sort().values, (X,)),
    "a reader of a reader": (lambda x: (x[x > 0] * 2).cumsum(0), (X,)),
    "item": (lambda x, n: x[:, : n.item()], (X, N)),
    "a wider mask": (lambda x: torch.masked_select(x[0], x > 0), (X,)),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_node_alone_is_compared(name: str) -> None:
    function, args = ALONE[name]
    report = debug(function, args, keep_going=True)
    assert report.rows == ()
    assert set(report.counts) <= {"ok", "open"}
    assert report.counts["ok"] >= 1


def test_a_wrong_rule_is_found_and_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = registry._RULES[aten.nonzero.default, None]
    monkeypatch.setitem(
        registry._RULES, (aten.nonzero.default, None), lambda x: right(x) + 1
    )
    (row,) = debug(lambda x: x.nonzero(), (X,), save=tmp_path).rows
    assert (row.op, row.max_abs) == ("aten.nonzero.default", 1)
    assert Path(row.saved).is_dir()


def test_a_wrong_count_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        counting._COUNTS, aten.nonzero.default, lambda x: jnp.count_nonzero(x) + 1
    )
    (row,) = debug(lambda x: x.nonzero(), (X,)).rows
    assert row.note == "counts 5 where torch has 4"
    assert row.max_abs is row.max_rel is row.threshold is None


def test_litert_refuses_with_a_hint() -> None:
    (row,) = debug(lambda x: x.nonzero(), (X,), target="litert").rows
    assert row.note.startswith("TPX-0290: nonzero has a shape that depends on the data")
    assert row.hint == "use torch.where or a mask that keeps the shape"


def test_what_was_not_measured_is_not_shown_as_a_number() -> None:
    report = debug(lambda x: torch.combinations(x[0], 1), (X,))
    assert "inf" not in report.text()
    assert report.rows[0].hint in report.text()
    assert report.to_json()["rows"][0]["max_abs"] is None  # type: ignore[index]
