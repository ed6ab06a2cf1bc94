from __future__ import annotations

import pytest

from tpu_export.runtime.expressions import evaluate, holds, names_in, relation

SIZES = {"a": 7, "b": 3, "_x1": 5}
GOOD = (
    ("a", 7), ("12", 12), ("0", 0), ("a + b", 10), ("a-b*2", 1), ("(a - b)*2", 8),
    ("a//b", 2), ("a % b", 1), ("-a//b", -3), ("-a % b", 2), ("- a - -b", -4),
    ("max(a, b)", 7), ("min(a, b + 9)", 7), ("floordiv(a, b)", 2), ("mod(-a, b)", 2),
    ("2*max(min(a, b), 1) + _x1", 11), ("a  +  b", 10), ("((((a))))", 7),
    ("9223372036854775807", 2**63 - 1),
)  # fmt: skip


@pytest.mark.parametrize(("text", "value"), GOOD)
def test_value(text: str, value: int) -> None:
    assert evaluate(text, SIZES) == value
    assert names_in(text) <= set(SIZES)


BAD = (
    "", " ", " a", "a ", "a b", "a +", "+a", "a**b", "a/b", "a&b", "a<b", "a if b else a",
    "1.5", "1e3", "1_0", "0x1", "01", "1a", "a.b", "a[0]", "(a", "a)", "()", "(a, b)", "a,b",
    "max(a)", "max(a, b, a)", "max(a, b,)", "max(*a, b)", "max(a, key=b)", "max", "pow(a, b)",
    "(a)(b)", "lambda: a", "None", "True", "not a", "a and b", "a#b", "a\n", "a\t+b", "é",
    "'a'", "f'a'", "a;b", "a:=1", "__import__('os')", "a" * 1001, "-" * 200 + "a",
    "(" * 150 + "a" + ")" * 150, "99999999999999999999",
)  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_everything_else_is_a_value_error(text: str) -> None:
    if text != "max":  # a name like any other, which no dimension may have
        with pytest.raises(ValueError, match="not a dimension expression"):
            names_in(text)
    with pytest.raises(ValueError, match="not a dimension expression"):
        evaluate(text, SIZES)


@pytest.mark.parametrize("text", ["c", "a//0", "a % (b - 3)"])
def test_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="not a dimension expression"):
        evaluate(text, SIZES)


@pytest.mark.parametrize(
    ("constraint", "true"),
    [
        ("a <= 7", True), ("a < 7", False), ("a >= 2*b + 1", True), ("a > b*b", False),
        ("a == b + 4", True), ("a != 7", False), ("a // 0 == 1", False), ("a // 0 != 1", False),
        ("c > 1", False), ("-a + b <= - 4", True),
    ],
)  # fmt: skip
def test_constraint(constraint: str, true: bool) -> None:
    assert holds(constraint, SIZES) is true


@pytest.mark.parametrize(
    "text", ["a", "a <= b <= 3", "a<=b", "a  <=b", "a =< b", "a is b"]
)
def test_no_constraint(text: str) -> None:
    with pytest.raises(ValueError, match="not a constraint"):
        relation(text)
