from __future__ import annotations

import pytest
import sympy
from torch.export import Dim as TorchDim
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from tpu_export.exporter.dims import DimNames, _Printer, check_ranges
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.runtime.signature import Dim

S, T = sympy.symbols("s77 s27", integer=True, positive=True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (S, "seq"),
        (2 * S + 1, "2*seq + 1"),
        (S - T, "-batch + seq"),
        (FloorDiv(S - 1, 2) + 1, "(((seq - 1) // 2)) + 1"),
        (FloorDiv(S, 4), "(seq // 4)"),
        (Mod(S, 4), "(seq % 4)"),
        (PythonMod(S + 1, 4), "((seq + 1) % 4)"),
        (Max(S, T), "max(batch, seq)"),
        (Min(S, 8), "min(8, seq)"),
        (Max(S, T, 4), "max(max(4, batch), seq)"),
        (S**2, "(seq*seq)"),
        ((S + 1) ** 2, "((seq + 1)*(seq + 1))"),
        (S * T, "batch*seq"),
        (sympy.Symbol("u0"), "u0"),
    ],
)
def test_expressions_are_python(expression: sympy.Expr, expected: str) -> None:
    printed = _Printer({"s77": "seq", "s27": "batch"}).doprint(expression)
    assert printed == expected
    values = {"seq": 13, "batch": 5, "u0": 2, "max": max, "min": min}
    known = {S: 13, T: 5, sympy.Symbol("u0"): 2}
    assert eval(printed, {}, values) == int(expression.subs(known))


@pytest.mark.parametrize(
    ("asked", "found", "narrowed"),
    [
        (TorchDim("b"), Dim("b", 1, None), False),
        (TorchDim("b", min=1, max=8), Dim("b", 1, 8), False),
        (TorchDim("b", min=2, max=8), Dim("b", 2, 8), False),
        (TorchDim("b", min=2, max=8), Dim("b", 3, 8), True),
        (TorchDim("b", min=2, max=8), Dim("b", 2, 7), True),
        (TorchDim("b", min=2), Dim("b", 2, 7), True),
        (2 * TorchDim("b", min=2), Dim("b", 3, 8), True),
        (2 * TorchDim("b", min=2), Dim("b", 2, None), False),
    ],
)
def test_check_ranges(asked: object, found: Dim, narrowed: bool) -> None:
    if not narrowed:
        check_ranges([None, {0: asked}], (found,))
        return
    with pytest.raises(DimRangeError, match="torch narrows b") as info:
        check_ranges([None, {0: asked}], (found,))
    assert f"min={found.minimum}" in info.value.hint


def test_static_sizes_stay_ints() -> None:
    assert DimNames().shape((2, 3)) == (2, 3)
