"""Branches on sizes: what torch took for granted is refused at capture or checked at each call."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.guards import (
    Leaves,
    _clauses,
    _says_something,
    _UnknownGuardError,
)
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.expressions import holds, names_in, relation
from tpu_export.runtime.inputs import InputError
from tpu_export.runtime.program import load
from tpu_export.runtime.signature import Dim as DynamicDim

B, T = Dim("b", max=64), Dim("t", max=64)
AUTO = Dim.AUTO
X, Y = torch.ones(4, 6), torch.ones(3)


@dataclass
class Pair:
    a: Tensor
    b: list[Tensor]


def either(condition: bool, x: Tensor) -> Tensor:
    return x * 2 if condition else x * 3


# a condition on the sizes of X, which are 4 and 6, and how many constraints say it
CONDITIONS: tuple[tuple[Callable[[Any, Any], Any], Any, int], ...] = (
    (lambda b, t: b <= t, {0: B, 1: T}, 1),
    (lambda b, t: b + 1 <= 2 * t, {0: B, 1: T}, 1),
    (lambda b, t: b != t, {0: B, 1: T}, 1),
    (lambda b, t: b * t <= 40, {0: AUTO, 1: AUTO}, 1),
    (lambda b, t: b % 2 == 0, {0: AUTO}, 1),
    (lambda b, t: b != 6, {0: AUTO}, 1),
    (lambda b, t: b > 3, {0: AUTO}, 0),  # the range says it
    (lambda b, t: b != 5 and b != 7, {0: AUTO}, 2),
    (lambda b, t: torch.sym_max(b, t) != 11, {0: AUTO, 1: AUTO}, 1),
    (lambda b, t: b // 3 == 1, {0: AUTO}, 1),
    (lambda b, t: True, {0: B, 1: T}, 0),
)


@pytest.mark.parametrize(("condition", "dynamic", "count"), CONDITIONS)
def test_constraints(
    condition: Callable[[Any, Any], Any], dynamic: Any, count: int
) -> None:
    captured = capture(
        lambda x: either(condition(*x.shape), x), (X,), dynamic_shapes=(dynamic,)
    )
    signature = captured.signature
    assert len(signature.constraints) == count
    for sizes in itertools.product(range(2, 12), range(2, 12) if 1 in dynamic else [6]):
        values = dict(zip((dim.name for dim in signature.dims), sizes, strict=False))
        in_range = all(dim.minimum <= values[dim.name] for dim in signature.dims)
        met = in_range and all(holds(c, values) for c in signature.constraints)
        assert met == bool(condition(*sizes)), sizes


def test_no_constraint_where_torch_asks_for_0_and_1() -> None:
    captured = capture(
        lambda x: x.view(x.shape[0] // 2, 2, -1), (X,), dynamic_shapes=({0: 2 * B},)
    )
    assert captured.signature.constraints == ()


def test_nested_inputs() -> None:
    def model(pair: Pair, more: Mapping[str, tuple[Tensor]]) -> Tensor:
        return either(
            pair.a.shape[0] < pair.b[1].shape[0] + more["k"][0].shape[0], pair.a
        )

    given = (Pair(X, [X + 1, torch.ones(7)]), {"k": (Y,)})
    shapes = ([{0: AUTO}, [None, {0: AUTO}]], {"k": ({0: AUTO},)})
    (found,) = capture(model, given, dynamic_shapes=shapes).signature.constraints
    left, _, right = relation(found)
    sides = {frozenset(names_in(left)), frozenset(names_in(right))}
    assert sides == {frozenset({"pair_a_0"}), frozenset({"pair_b_1_0", "more_k_0_0"})}


def test_more_positional_arguments() -> None:
    class Model(torch.nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return either(args[0].shape[0] > args[1].shape[0], args[0])

    shapes = {"args": ({0: AUTO}, {0: AUTO})}
    captured = capture(Model(), (X, Y), dynamic_shapes=shapes)
    assert captured.signature.constraints == ("args_0_0 > args_1_0",)


REFUSED = (
    ("a promise that does not hold", lambda x: either(x.shape[0] >= 8, x), {0: 2 * B},
     r"torch narrows b from 0 … 64 to 4 … 64"),
    ("a window that does not fit", lambda x: F.avg_pool1d(x, 2), {1: T},
     r"not hold for every t: only where t // 2 >= 1"),
    ("what no call can check", lambda x: either(x.shape[0] / 2 <= x.shape[1], x),
     {0: AUTO, 1: AUTO}, r"x\.shape\[0\] / 2.* which no call can check"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "dynamic", "words"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refused(model: Callable[..., Any], dynamic: Any, words: str) -> None:
    with pytest.raises(DimRangeError, match=words):
        capture(model, (torch.ones(8, 6),), dynamic_shapes=(dynamic,))


def test_a_call_that_would_take_the_other_branch(tmp_path: Path) -> None:
    captured = capture(
        lambda x, n: either(x.shape[0] <= x.shape[1] and n > 2, x) + n,
        (X, 3),
        dynamic_shapes=({0: B, 1: T}, Dim.DYNAMIC),
    )
    path = captured.lower().save(tmp_path / "m.tpuexe")
    assert Artifact(path).manifest.features == ("constraints",)
    program = load(path, device="cpu")
    np.testing.assert_array_equal(program(np.ones((2, 3), "f4"), 5), np.full((2, 3), 7))
    with pytest.raises(InputError, match="captured for b <= t, given b = 4, t = 3"):
        program(np.ones((4, 3), "f4"), 5)
    with pytest.raises(InputError, match="captured for n > 2, given n = 2"):
        program(np.ones((2, 3), "f4"), 2)


def test_a_saved_program_keeps_its_guards(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return either(x.shape[0] <= x.shape[1], x)

    program = torch.export.export(Model(), (X,), dynamic_shapes=({0: B, 1: T},))
    torch.export.save(program, tmp_path / "m.pt2")
    captured = capture(tmp_path / "m.pt2", (X,))
    assert captured.signature.constraints == ("x_0 <= x_1",)


def test_a_choice_of_which_one_always_holds() -> None:
    """As torch's einsum and broadcasting ask: is a size 1, or that of the other operand?"""
    leaves = Leaves({("x",): ("n", 4), ("y",): ("n", "m")}, {})
    for text, clause in (
        ("L['x'].size()[0] == 1 or L['x'].size()[0] == L['y'].size()[0]", ()),
        ("L['x'].size()[0] == 1 or L['x'].size()[1] == 4 and L['y'].size()[0] > 0", ()),
        ("L['x'].size()[0] <= 1 or L['y'].size()[1] <= 2", ("n <= 1", "m <= 2")),
    ):
        found = [
            clause
            for clause in _clauses(ast.parse(text, mode="eval").body, leaves)
            if _says_something(clause, [DynamicDim("n"), DynamicDim("m")])
        ]
        assert found == ([clause] if clause else [])


def test_guards_are_data() -> None:
    for code in (
        "__import__('os').system('true') == 0",
        "L['x'].shape[0] == 1",
        "f(1) < 2",
    ):
        with pytest.raises(_UnknownGuardError):
            [*_clauses(ast.parse(code, mode="eval").body, Leaves({}, {}))]


@pytest.mark.parametrize(
    ("constraint", "dim", "says"),
    [
        ("n >= 1", DynamicDim("n", 1, 9), False),
        ("n <= 8", DynamicDim("n", 1, 9), True),
        ("n != 8", DynamicDim("n", 1, 64), True),
        ("n <= 5000", DynamicDim("n", 1, None), True),
        ("n // 2 != 1", DynamicDim("n", 1, 9), False),
        ("n // 2 >= 2", DynamicDim("n", 1, 9), False),
        ("1 < 2 * n // 2", DynamicDim("n", 1, 9), False),
        ("1 <= n // 2", DynamicDim("n", 1, 9), True),
        ("4 * n != 4", DynamicDim("n", 1, 9), False),
        ("4 * n != 8", DynamicDim("n", 1, 9), True),
        ("n // 2 >= 1", DynamicDim("n", 1, 9), True),
        ("6 % n == 0", DynamicDim("n", 0, 3), True),
        ("k > n", DynamicDim("n", 1, 9), True),
    ],
)
def test_what_a_constraint_says(constraint: str, dim: DynamicDim, says: bool) -> None:
    assert _says_something((constraint,), [dim]) is says
