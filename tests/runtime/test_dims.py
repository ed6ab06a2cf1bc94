from __future__ import annotations

import pytest

from tpu_export.runtime.dims import solve_dims
from tpu_export.runtime.signature import Dim, DimSize, TensorSpec

BATCH, SEQ = Dim("batch", 1, 64), Dim("seq", 2, None)
Case = tuple[list[tuple[DimSize, ...]], list[tuple[int, ...]], dict[str, int]]
SOLVED: tuple[Case, ...] = (
    ([("batch", 3)], [(5, 3)], {"batch": 5}),
    ([("batch", "seq"), ("seq",)], [(5, 7), (7,)], {"batch": 5, "seq": 7}),
    ([("2*batch",)], [(10,)], {"batch": 5}),
    ([("batch + seq",), ("seq",)], [(12,), (7,)], {"batch": 5, "seq": 7}),
    ([("2*seq + 1", "batch*seq")], [(15, 21)], {"batch": 3, "seq": 7}),
    ([("batch//2",)], [(3,)], {"batch": 6}),
    ([("batch % 10 + 1",)], [(3,)], {"batch": 2}),
    ([("max(batch, 4)",)], [(9,)], {"batch": 9}),
    ([("batch*batch",)], [(49,)], {"batch": 7}),
    ([("64 - batch",)], [(60,)], {"batch": 4}),
    ([("seq - 1",)], [(6,)], {"seq": 7}),
)


def solve(
    shapes: list[tuple[DimSize, ...]], given: list[tuple[int, ...]]
) -> tuple[dict[str, int], list[str]]:
    specs = [TensorSpec(f"x{i}", shape, "float32") for i, shape in enumerate(shapes)]
    text = str(shapes)
    dims = [dim for dim in (BATCH, SEQ) if dim.name in text]
    return solve_dims(specs, {f"x{i}": g for i, g in enumerate(given)}, dims)


@pytest.mark.parametrize(("shapes", "given", "sizes"), SOLVED)
def test_solved(
    shapes: list[tuple[DimSize, ...]],
    given: list[tuple[int, ...]],
    sizes: dict[str, int],
) -> None:
    assert solve(shapes, given) == (sizes, [])


WRONG: tuple[tuple[list[tuple[DimSize, ...]], list[tuple[int, ...]], str], ...] = (
    ([("batch", 3)], [(5, 4)], "x0 has size 4 in axis 1, expected 3"),
    ([("batch",), ("batch",)], [(5,), (6,)],
     "x1 has size 6 in axis 0, expected batch = 5 as in axis 0 of x0"),
    ([("batch",)], [(65,)],
     "dimension batch = 65 is outside 1 … 64: x0 has size 65 in axis 0"),
    ([("batch",)], [(0,)], "dimension batch = 0 is outside 1 … 64: x0 has size 0 in axis 0"),
    ([("seq",)], [(1,)], "dimension seq = 1 is outside at least 2: x0 has size 1 in axis 0"),
    ([("2*batch",)], [(130,)],
     "dimension batch = 65 is outside 1 … 64: x0 has size 130 in axis 0"),
    ([("2*batch",)], [(9,)],
     "x0 has size 9 in axis 0, expected 2*batch with a batch of 1 … 64"),
    ([("4*seq",)], [(9,)],
     "x0 has size 9 in axis 0, expected 4*seq with a seq of at least 2"),
    ([("batch*batch",)], [(48,)],
     "x0 has size 48 in axis 0, expected batch*batch with a batch of 1 … 64"),
    ([("batch + seq",)], [(9,)],
     "x0 has size 9 in axis 0, expected batch + seq with a batch of 1 … 64"),
    ([("batch", "batch + 1")], [(5, 5)],
     "x0 has size 5 in axis 1, expected batch + 1 = 6 with batch = 5 as in axis 0 of x0"),
    ([("batch", "seq"), ("batch + seq",)], [(5, 7), (11,)],
     "x1 has size 11 in axis 0, expected batch + seq = 12 with batch = 5 as in axis 0 of x0, "
     "seq = 7 as in axis 1 of x0"),
)  # fmt: skip


@pytest.mark.parametrize(("shapes", "given", "what"), WRONG)
def test_wrong(
    shapes: list[tuple[DimSize, ...]], given: list[tuple[int, ...]], what: str
) -> None:
    assert what in solve(shapes, given)[1]


def test_all_that_is_wrong_is_said_at_once() -> None:
    shapes: list[tuple[DimSize, ...]] = [("batch", "seq"), ("batch", 2)]
    assert len(solve(shapes, [(70, 1), (3, 4)])[1]) == 4


def test_missing_inputs_are_not_reported_twice() -> None:
    specs = [TensorSpec("x", ("batch",), "float32"), TensorSpec("y", ("seq",), "int32")]
    assert solve_dims(specs, {"x": (3,)}, (BATCH, SEQ)) == ({"batch": 3}, [])
