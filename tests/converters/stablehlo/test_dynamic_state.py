"""Dynamic dimensions with state, written inputs, integers and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.inputs import InputError
from tpu_export.runtime.program import Program, load

B, T, S = Dim("b", max=64), Dim("t", max=64), Dim("s", max=64)


class Cached(nn.Module):
    """Attention over a cache that each call writes its tokens to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 12, 4))
        self.project = nn.Linear(4, 4)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        self.keys.index_copy_(1, positions, self.project(x))
        seen = torch.arange(12) <= positions[:, None]
        return F.scaled_dot_product_attention(x, self.keys, self.keys, attn_mask=seen)


class Appended(nn.Module):
    """A cache that the caller holds, one step longer after each call."""

    def forward(self, x: Tensor, past: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        keys, values = (torch.cat([old, new], 1) for old, new in zip(past, (x, -x)))  # noqa: B905
        length, total = x.shape[1], keys.shape[1]
        mask = torch.ones(length, total, dtype=torch.bool).tril(total - length)
        y = F.scaled_dot_product_attention(x, keys, values, attn_mask=mask)
        return y, [keys, values]


class Sliced(nn.Module):
    """A buffer written by slices of dynamic length, and counted."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(64, 3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        self.rows[: x.shape[0]] = x
        self.rows[x.shape[0] :] += 1
        self.calls.add_(1)
        return self.rows.sum(0) + x.shape[0] * self.calls


class Tuned(nn.Module):
    """A table of positions, cut to the length of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 4)
        self.places = nn.Parameter(torch.randn(64, 4))

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        x = self.words(ids) + self.places[: ids.shape[1]]
        x = x.masked_fill(~keep[:, :, None], 0.0)
        return x.sum(1) / keep.sum(1, keepdim=True).clamp(min=1)


def texts(batch: int, length: int) -> tuple[Tensor, Tensor]:
    ids = torch.randint(0, 20, (batch, length))
    return ids, torch.rand(batch, length) > 0.3


def cached(length: int, start: int) -> tuple[Tensor, Tensor]:
    return torch.randn(2, length, 4), torch.arange(start, start + length)


def appended(batch: int, length: int, past: int) -> tuple[Tensor, list[Tensor]]:
    return torch.randn(batch, length, 4), [torch.randn(batch, past, 4) for _ in "kv"]


def test_a_cache_written_at_positions(check_module: Any) -> None:
    module = Cached()
    check_module(
        module,
        cached(3, 0),
        more=[cached(1, 3), cached(1, 4), cached(7, 5)],
        dynamic_shapes=({1: T}, {0: T}),
        tol=(1e-5, 1e-5),
    )


def test_a_cache_that_grows(check_module: Any) -> None:
    check_module(
        Appended(),
        appended(2, 3, 5),
        more=[appended(1, 1, 1), appended(2, 1, 8), appended(3, 6, 2)],
        dynamic_shapes=({0: B, 1: T}, [{0: B, 1: S}, {0: B, 1: S}]),
        tol=(1e-5, 1e-5),
    )


def test_a_buffer_written_by_slices(check_module: Any) -> None:
    check_module(
        Sliced(),
        (torch.randn(4, 3),),
        more=[(torch.randn(n, 3),) for n in (1, 9, 63)],
        dynamic_shapes=({0: Dim("n", max=63)},),
        calls=2,
        tol=(1e-5, 1e-5),
    )


def test_an_input_that_is_written(check_module: Any) -> None:
    check_module(
        lambda x: x.mul_(x.shape[0])[:, : x.shape[1] // 2].exp(),
        (torch.randn(2, 6),),
        more=[(torch.randn(1, 2),), (torch.randn(3, 8),)],
        dynamic_shapes=({0: B, 1: 2 * T},),
    )


def test_ids_and_masks(check_module: Any) -> None:
    check_module(
        Tuned(),
        texts(3, 5),
        more=[texts(1, 1), texts(2, 64), texts(5, 9)],
        dynamic_shapes=({0: B, 1: T}, {0: B, 1: T}),
        tol=(1e-5, 1e-5),
    )


def test_a_whole_number_as_input(check_module: Any) -> None:
    check_module(
        lambda x, n: (x * n + n / 2, n + x.shape[0]),
        (torch.randn(2, 3), 5),
        more=[(torch.randn(4, 3), 7), (torch.randn(1, 3), 2)],
        dynamic_shapes=({0: B}, Dim.DYNAMIC),
    )


def test_a_branch_inside_the_graph(check_module: Any) -> None:
    check_module(
        lambda x: torch.cond(x.sum() > 0, lambda x: x.cumsum(0), lambda x: -x, (x,)),
        (torch.ones(4, 3),),
        more=[(-torch.ones(2, 3),), (torch.ones(7, 3),)],
        dynamic_shapes=({0: B},),
    )


REFUSED = {
    "steps of linspace": (
        lambda x: torch.linspace(0, 1, x.shape[0]) * x[:, 0], {0: B}, DimRangeError, "b as dynamic"
    ),
    "a plain number of a size": (
        lambda x: x * float(x.shape[0]), {0: B}, DimRangeError, "b as dynamic"
    ),
    "a range that the model does not hold for": (
        lambda x: x * 2 if x.shape[0] > 3 else x, {0: B}, DimRangeError, "b = axis 0 of x"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str, run_module: Any) -> None:
    model, dynamic, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        run_module(model, (torch.randn(5, 3),), dynamic_shapes=(dynamic,))


def test_a_number_that_is_a_size(run_module: Any) -> None:
    with pytest.raises(TpuExportError, match="depends on the data: it comes from n"):
        run_module(
            lambda x, n: x[:, :n] * 2,
            (torch.randn(5, 9), 4),
            dynamic_shapes=({0: B}, Dim.DYNAMIC),
        )


def test_a_loop_is_not_tied_to_the_sizes_of_an_earlier_capture() -> None:
    module, x = nn.LSTM(3, 4, batch_first=True), torch.randn(2, 7, 3)
    capture(module, (x,), dynamic_shapes=({1: T},))
    captured = capture(module, (x,), dynamic_shapes=({0: B, 1: T},))
    assert captured.signature.inputs[0].shape == ("b", "t", 3)


BOUNDS: dict[str, tuple[tuple[int, int, int], str]] = {
    "too small": ((1, 1, 2), "dimension n = 1 is outside 2 … 8: x has size 1 in axis 0"),
    "too large": ((9, 9, 18), "dimension n = 9 is outside 2 … 8: x has size 9 in axis 0"),
    "two that disagree": (
        (4, 5, 8), "y has size 5 in axis 0, expected n = 4 as in axis 0 of x"
    ),
    "derived": (
        (4, 4, 9), "z has size 9 in axis 0, expected 2*n = 8 with n = 4 as in axis 0 of x"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_a_call_out_of_bounds(name: str, summed: Program) -> None:
    sizes, words = BOUNDS[name]
    with pytest.raises(InputError) as info:
        summed(*(np.ones(n, np.float32) for n in sizes))
    assert words in str(info.value)
    assert info.value.code == "TPX-0505"
    assert summed.compilations == 0


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Program:
    n = Dim("n", min=2, max=8)
    captured = capture(
        lambda x, y, z: torch.cat([x, y]) + z,
        (torch.ones(4), torch.ones(4), torch.ones(8)),
        dynamic_shapes=({0: n}, {0: n}, {0: 2 * n}),
    )
    folder = tmp_path_factory.mktemp("summed")
    return load(captured.lower().save(folder / "m.tpuexe"), device="cpu")


def test_a_size_that_is_no_multiple(run_module: Any) -> None:
    dynamic = ({0: 4 * Dim("n", min=1, max=8)},)
    *_, program = run_module(lambda x: x * 2, (torch.ones(8),), dynamic_shapes=dynamic)
    words = r"x has size 9 in axis 0, expected 4\*n with a n of 1 … 8"
    with pytest.raises(InputError, match=words):
        program(np.ones(9, np.float32))
