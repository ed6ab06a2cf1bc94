"""Sizes that the data decides: counted before main runs, whatever the data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.counts import CountError
from tpu_export.runtime.executables import NoExecutableError
from tpu_export.runtime.program import load

torch.manual_seed(0)
X = torch.randn(6, 3)
M = X[:, 0] > 0
NONE, ALL = torch.zeros(6, dtype=torch.bool), torch.ones(6, dtype=torch.bool)
I = torch.tensor([1, 2, 5, 1])  # noqa: E741
REPEATS = torch.tensor([1, 2, 0, 1, 1, 3])
B = Dim("b", max=64)
LINEAR = nn.Linear(3, 4)


class Detector(nn.Module):
    """Scores places, keeps the likely ones, and sorts them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.head = nn.Linear(6, 5)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        features = self.conv(image).flatten(2).transpose(1, 2)[0]
        found = self.head(features)
        scores = found[:, 4].sigmoid()
        keep = scores > 0.5
        boxes, scores = found[keep, :4], scores[keep]
        order = scores.argsort(descending=True, stable=True)
        return boxes[order], scores[order]


class Experts(nn.Module):
    """Sends each row to one of two experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(3, 2)
        self.experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        chosen, result = self.gate(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = torch.where(chosen == number)[0]
            result.index_add_(0, rows, expert(x[rows]))
        return result


class Grid(nn.Module):
    """Positions of a grid whose sides are values."""

    def forward(self, sides: Tensor) -> Tensor:
        h, w = sides.tolist()
        torch._check(h >= 2)
        torch._check(h <= 64)
        torch._check(w >= 2)
        torch._check(w <= 64)
        rows = torch.arange(h).unsqueeze(1).expand(-1, w)
        return rows.reshape(h // 2, 2, w // 2, 2).permute(0, 2, 1, 3).flatten()


class Counter(nn.Module):
    """Adds up how many numbers were positive."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        positive = x[x > 0]
        self.seen += positive.shape[0]
        return positive


def twice(x: Tensor) -> Any:
    y = x[x[:, 0] > 0]
    z = y[y[:, 1] > 0]
    return y, z, z.sum()


def halves(x: Tensor, sizes: Tensor) -> Any:
    a, b = sizes.tolist()
    torch._check(a >= 0)
    torch._check(b >= 0)
    torch._check(a + b == 6)
    return x.split([a, b])


# name -> function, example, dynamic_shapes, other arguments to call it with
MODELS: dict[str, tuple[Callable[..., Any], Any, Any, list[Any]]] = {
    "nonzero": (lambda x: (x > 0).nonzero(), (X,), None, [(X * 0,), (-X,)]),
    "argwhere": (lambda x: torch.argwhere(x), (X,), None, [(X.relu(),)]),
    "places": (lambda x: torch.nonzero(x.relu(), as_tuple=True), (X,), None, [(-X,)]),
    "the place of a scalar": (
        lambda x: x[0, 0].nonzero(as_tuple=True), (X,), None, [(X * 0,)],
    ),
    "where": (lambda x: torch.where(x > 0), (X,), None, [(-X,)]),
    "rows": (lambda x, m: x[m], (X, M), None, [(X, NONE), (X, ALL)]),
    "rows of a dynamic batch": (
        lambda x, m: x[m] * 2 + 1, (X, M), ({0: B}, {0: B}), [(X[:4], M[:4]), (X, NONE)],
    ),
    "elements": (lambda x: x[x > 0], (X,), None, [(-X.abs(),)]),
    "a middle axis": (lambda x: x[None][:, x[:, 0] > 0, 1:], (X,), None, [(-X,)]),
    "masked_select": (lambda x, m: x.masked_select(m[:, None]), (X, M), None, [(X, NONE)]),
    "masked_select of a wider mask": (
        lambda x: torch.masked_select(x[0], x > 0), (X,), None, [(X.abs() + 1,)],
    ),
    "linear": (lambda x, m: LINEAR(x[m]).relu(), (X, M), None, [(X, NONE)]),
    "softmax": (lambda x, m: x[m].softmax(0), (X, M), None, [(X, ALL)]),
    "cat": (lambda x, m: torch.cat([x[m], x[~m]]), (X, M), None, [(X, NONE), (X, ALL)]),
    "mean": (lambda x, m: x[m].mean(0), (X, M), None, [(X, NONE)]),
    "sort": (lambda x, m: x[m].sort(0).values, (X, M), None, [(X, NONE)]),
    "cumsum": (lambda x, m: x[m].cumsum(0), (X, M), None, [(X, NONE)]),
    "padded to 6": (
        lambda x, m: F.pad(x[m], (0, 0, 0, 6 - x[m].shape[0])), (X, M), None, [(X, NONE)],
    ),
    "written back": (
        lambda x, m: torch.index_put(x, [m], LINEAR(x)[m][:, :3] * 2),
        (X, M), None, [(X, NONE)],
    ),
    "matmul": (lambda x, m: x[m] @ x[m].T, (X, M), None, [(X, NONE)]),
    "attention": (
        lambda x, m: F.scaled_dot_product_attention(x[m][None], x[m][None], x[m][None]),
        (X, M), None, [(X, ALL)],
    ),
    "differences": (lambda x, m: x[m][1:] - x[m][:-1], (X, M), None, [(X, ALL)]),
    "repeated rows": (
        lambda x, r: x.repeat_interleave(r, 0), (X, REPEATS), None,
        [(X, REPEATS * 0), (X, REPEATS * 2)],
    ),
    "all rows repeated": (
        lambda x, r: x.repeat_interleave(r, 0), (X, REPEATS[:1]), None, [(X, REPEATS[:1] + 2)],
    ),
    "repeated rows of a dynamic size": (
        lambda x, r: x.repeat_interleave(r, 0), (X, REPEATS), ({0: B}, {0: B}),
        [(X[:3], REPEATS[:3] + 1)],
    ),
    "all rows of a dynamic size repeated": (
        lambda x: x.repeat_interleave(torch.tensor([3]), 0), (X,), ({0: B},), [(X[:3],)],
    ),
    "repeated places": (
        lambda r: torch.repeat_interleave(r), (REPEATS,), None, [(REPEATS * 0,)],
    ),
    "bincount": (lambda i: torch.bincount(i), (I,), None, [(I + 3,), (I * 0,)]),
    "weighted bincount": (
        lambda i, w: torch.bincount(i, w, minlength=4), (I, torch.rand(4)), None, [],
    ),
    "bincount weighted by integers": (
        lambda i, w: torch.bincount(i, w), (I, torch.tensor([1, 2, 3, 4])), None, [],
    ),
    "bincount of bytes": (lambda i: torch.bincount(i), (I.to(torch.uint8),), None, []),
    "masked_select of a scalar": (
        lambda x: torch.masked_select(x, x > 0), (X[0, 0],), None, [(-X[0, 0],)],
    ),
    "unique": (lambda i: torch.unique(i), (I,), ({0: B},), [(I[:2],)]),
    "unique with all": (
        lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
        (X,), None, [(X * 3,)],
    ),
    "unique NaN": (
        lambda x: torch.unique(x), (torch.tensor([1.0, np.nan, 1.0, np.nan]),), None, [],
    ),
    "unique rows": (
        lambda x: torch.unique(x.sign(), dim=0, return_inverse=True, return_counts=True),
        (X,), None, [(X.abs(),)],
    ),
    "unique columns": (
        lambda x: torch.unique(x.sign(), dim=1, return_inverse=True), (X,), None, [],
    ),
    "consecutive": (
        lambda i: torch.unique_consecutive(i, return_inverse=True, return_counts=True),
        (torch.tensor([1, 1, 2, 2, 2, 1]),), None, [(torch.tensor([1, 2, 1, 2, 1, 2]),)],
    ),
    "consecutive rows": (
        lambda i: torch.unique_consecutive(i, dim=0),
        (torch.tensor([[1, 1], [1, 1], [2, 2]]),), None, [],
    ),
    "a slice": (
        lambda x, n: x[: n.item()], (X, torch.tensor(3)), None,
        [(X, torch.tensor(-1)), (X, torch.tensor(0)), (X, torch.tensor(99))],
    ),
    "split": (halves, (X, torch.tensor([2, 4])), None, [(X, torch.tensor([5, 1]))]),
    "one after the other": (twice, (X,), None, [(-X,), (X.abs(),)]),
    "grid": (Grid(), (torch.tensor([4, 6]),), None, [(torch.tensor([2, 64]),)]),
    "detector": (
        Detector(), (torch.randn(1, 3, 8, 8),), None, [(torch.randn(1, 3, 8, 8) * 3,)],
    ),
    "experts": (Experts(), (X,), ({0: B},), [(X[:3],), (X[:1],)]),
}  # fmt: skip


def saved(function: Callable[..., Any], args: Any, dynamic: Any, folder: Path) -> Path:
    captured = capture(function, args, dynamic_shapes=dynamic)
    lowered = lower(captured)
    assert lowered.program.counts
    return lowered.save(folder / "m.tpuexe")


def arrays(values: Any) -> Any:
    return pytree.tree_map_only(Tensor, lambda t: t.numpy(), values)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_like_eager(name: str, tmp_path: Path) -> None:
    function, args, dynamic, others = MODELS[name]
    program = load(saved(function, args, dynamic, tmp_path), device="cpu")
    for given in (args, *others):
        got = pytree.tree_leaves(program(*arrays(given)))
        want = pytree.tree_leaves(function(*given))
        for mine, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(torch.from_numpy(mine), theirs, equal_nan=True)


def test_state_counts_too(tmp_path: Path) -> None:
    program = load(saved(Counter(), (X,), None, tmp_path), device="cpu")
    for given in (X, -X):
        np.testing.assert_array_equal(program(given.numpy()), given[given > 0])
    assert program.state["seen"] == X.numel()


def test_a_sum_of_a_selection_needs_no_count() -> None:
    captured = capture(lambda x: (x[x > 0].sum(), x[x > 0].shape[0]), (X,))
    assert lower(captured).program.counts == ()


def test_the_signature_says_what_is_counted(tmp_path: Path) -> None:
    path = saved(lambda x, m: x[m], (X, M), None, tmp_path)
    program = Artifact(path).manifest.programs["forward"]
    assert [(d.name, d.minimum, d.maximum) for d in program.signature.counted] == [
        ("index_size", 0, 6)
    ]
    assert program.signature.outputs[0].shape == ("index_size", 3)
    assert Artifact(path).manifest.features == ("counted",)
    assert Artifact(path).manifest.executables == ()
    with pytest.raises(NoExecutableError, match="the data decides index_size"):
        load(path, device="cpu", executables="require")(X.numpy(), M.numpy())


def test_code_is_compiled_once_for_each_size(tmp_path: Path) -> None:
    program = load(saved(lambda x, m: x[m], (X, M), None, tmp_path), device="cpu")
    compiled = []
    for mask in (M, M.flip(0), NONE, ALL, M):
        program(X.numpy(), mask.numpy())
        compiled.append(program.compilations)
    assert compiled == [2, 2, 3, 4, 4]  # the count, then main at each new size


def test_sizes_that_torch_refuses_are_refused(tmp_path: Path) -> None:
    program = load(saved(Grid(), (torch.tensor([4, 6]),), None, tmp_path), device="cpu")
    with pytest.raises(CountError, match="item_size is 1, outside 2 … 64"):
        program(np.array([1, 6]))
    with pytest.raises(CountError, match=r"captured for .*item_size"):
        program(np.array([3, 6]))


@pytest.mark.parametrize(
    "function",
    [lambda i: torch.repeat_interleave(i), lambda i: torch.bincount(i)],
    ids=["repeats", "bins"],
)
def test_negative_numbers_are_refused(
    function: Callable[..., Any], tmp_path: Path
) -> None:
    program = load(saved(function, (I,), None, tmp_path), device="cpu")
    with pytest.raises(CountError, match="is -1, outside 0"):
        program(np.array([1, -1, 2, 3]))


def test_new_weights_count_anew(tmp_path: Path) -> None:
    path = saved(Experts(), (X,), None, tmp_path)
    program, other = load(path, device="cpu"), Experts()
    program.update_weights({k: v.numpy() for k, v in other.state_dict().items()})
    expected = other(X).detach()
    torch.testing.assert_close(torch.from_numpy(program(X.numpy())), expected)


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(UnsupportedOptionError, match="combinations"):
        lower(capture(lambda x: torch.combinations(x, 1), (X[0],)))


def test_litert_refuses() -> None:
    with pytest.raises(UnsupportedOptionError, match="depends on the data"):
        lower(capture(lambda x, m: x[m], (X, M)), target="litert")
