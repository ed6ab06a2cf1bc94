"""Slices and reads of what the data selects, where that is nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils import _pytree as pytree

from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower
from tpu_export.runtime.counts import CountError
from tpu_export.runtime.program import load

X = torch.arange(18.0).reshape(6, 3) - 5
MASKS = [torch.arange(6) < n for n in (3, 0, 1, 2, 6)]
SLICES = [
    slice(1, None), slice(-1, None), slice(1, -1), slice(-3, -1), slice(2, 4),
    slice(None, 2), slice(-2, 2), slice(None, -1), slice(1, None, 2),
]  # fmt: skip
# name -> of a selection of rows
MODELS: dict[str, Callable[[torch.Tensor], Any]] = {
    "slices": lambda v: [v[s] for s in SLICES],
    "differences": lambda v: v[1:] - v[:-1],
    "second differences": lambda v: v[2:] - 2 * v[1:-1] + v[:-2],
    "stack": lambda v: torch.stack([v[1:], v[:-1]]),
    "cat": lambda v: torch.cat([v[-1:], v[:1]]),
    "at least one": lambda v: torch.zeros(max(v.shape[0], 1)),
    "places": lambda v: v[v[:, 0].argsort()][1:],
    "a selection of it": lambda v: v[v[:, 0] > 0][1:],
    "medians": lambda v: [v.median(), v.nanmedian(), v.long().median()],
    "distinct": lambda v: v.unique(return_inverse=True, return_counts=True),
    "runs": lambda v: torch.unique_consecutive(v > 3, return_counts=True),
    "attention": lambda v: scaled_dot_product_attention(X[None], v[None], v[None]),
    "its places": lambda v: (v > 0).nonzero()[1:],
}


def arrays(values: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.numpy(), values)


def loaded(function: Callable[..., Any], mask: torch.Tensor, folder: Path) -> Any:
    captured = capture(lambda x, m: function(x[m]), (X, mask))
    return load(lower(captured).save(folder / "m.tpuexe"), device="cpu")


@pytest.mark.parametrize("name", MODELS)
def test_like_eager(name: str, tmp_path: Path) -> None:
    function = MODELS[name]
    program = loaded(function, MASKS[0], tmp_path)
    for mask in MASKS:
        got = pytree.tree_leaves(program(*arrays((X, mask))))
        want = pytree.tree_leaves(function(X[mask]))
        for mine, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs, equal_nan=True)


def test_two_selections_of_one_size(tmp_path: Path) -> None:
    def attended(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(x[None], x[m][None], x[m.clone()][None])

    captured = capture(attended, (X, MASKS[0]))
    program = load(lower(captured).save(tmp_path / "m.tpuexe"), device="cpu")
    for mask in MASKS:
        torch.testing.assert_close(
            torch.from_numpy(program(*arrays((X, mask)))), attended(X, mask)
        )


def test_an_example_that_selects_nothing(tmp_path: Path) -> None:
    program = loaded(lambda v: v[1:], MASKS[1], tmp_path)
    for mask in MASKS:
        got = torch.from_numpy(program(*arrays((X, mask))))
        torch.testing.assert_close(got, X[mask][1:])


@pytest.mark.parametrize(
    "function",
    [lambda v: v[0], lambda v: v[-1], lambda v: v.select(0, 0), lambda v: v.amax(0)],
    ids=["first", "last", "select", "amax"],
)
def test_what_needs_an_element_is_refused_without(
    function: Callable[..., Any], tmp_path: Path
) -> None:
    program = loaded(function, MASKS[0], tmp_path)
    got = torch.from_numpy(program(*arrays((X, MASKS[2]))))
    torch.testing.assert_close(got, function(X[MASKS[2]]))
    with pytest.raises(CountError, match="index_size is 0, outside 1 … 6"):
        program(*arrays((X, MASKS[1])))
