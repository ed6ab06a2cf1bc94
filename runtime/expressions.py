"""Dimension expressions such as "2*batch + seq//2": parsed strictly, evaluated on anything.

A constraint is two of them around a comparison: "batch <= 2*seq".

The grammar (docs/tpuexe.md rule 3.7) is a part of Python's: integers, names, + - * // %,
unary minus, parentheses, and the functions max, min, floordiv and mod of two arguments.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": max,
    "min": min,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}
RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
MAX_LENGTH = 1000
MAX_TOKENS = 200
_RELATION = re.compile(f" ({'|'.join(RELATIONS)}) ")
_TOKEN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|(?:0|[1-9][0-9]{0,18})(?![A-Za-z0-9_])|//|[-+*%(),]"
)


def evaluate(
    expression: str,
    values: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]] = FUNCTIONS,
) -> Any:
    """Return the value of an expression.

    Raises:
        ValueError: the text is not in the grammar, too long, or names an unknown dimension.

    >>> evaluate("2*batch + seq//2", {"batch": 3, "seq": 9})
    10
    """

    def visit(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in values:
                return values[name]
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](visit(left), visit(right))
            case ast.UnaryOp(operand=operand):
                return -visit(operand)
            case ast.Call(func=ast.Name(id=name), args=[a, b]):
                return functions[name](visit(a), visit(b))
        raise _error(expression)

    try:
        return visit(_parse(expression))
    except ZeroDivisionError as error:
        raise _error(expression) from error


def names_in(expression: str) -> set[str]:
    """Return the dimensions that an expression mentions.

    Raises:
        ValueError: the text is not in the grammar, or too long.
    """
    functions = {
        id(node.func) for node in ast.walk(_parse(expression)) if type(node) is ast.Call
    }
    return {
        node.id
        for node in ast.walk(_parse(expression))
        if isinstance(node, ast.Name) and id(node) not in functions
    }


def relation(constraint: str) -> tuple[str, str, str]:
    """Return the sides of "batch <= 2*seq" around its operator.

    Raises:
        ValueError: there is not exactly one operator, with one space on either side.

    >>> relation("batch <= 2*seq")
    ('batch', '<=', '2*seq')
    """
    parts = _RELATION.split(constraint)
    if len(parts) != 3:
        message = f"not a constraint: {constraint[:100]!r}"
        raise ValueError(message)
    return parts[0], parts[1], parts[2]


def constraint_names(constraint: str) -> set[str]:
    """Return the names that a constraint mentions.

    Raises:
        ValueError: it is not in the grammar.
    """
    left, _, right = relation(constraint)
    return names_in(left) | names_in(right)


def holds(constraint: str, values: Mapping[str, int]) -> bool:
    """Whether a constraint is true of the values; not where it cannot be computed.

    >>> holds("batch <= 2*seq", {"batch": 3, "seq": 1})
    False
    """
    left, compare, right = relation(constraint)
    try:
        sides = evaluate(left, values), evaluate(right, values)
    except ValueError:
        return False
    return bool(RELATIONS[compare](*sides))


@lru_cache(maxsize=1024)
def _parse(expression: str) -> ast.expr:
    tokens = [*_tokens(expression)]
    pairs = [*itertools.pairwise(tokens)]
    if len(expression) > MAX_LENGTH or len(tokens) > MAX_TOKENS or (",", ")") in pairs:
        raise _error(expression)
    try:
        body = ast.parse(expression, mode="eval").body
    except (SyntaxError, MemoryError, RecursionError) as error:
        raise _error(expression) from error
    _check(body, expression)
    return body


def _tokens(expression: str) -> Iterator[str]:
    """Split strictly: Python alone would take comments, hexadecimal and more."""
    position = 0
    while position < len(expression):
        found = _TOKEN.match(expression, position)
        if not found:
            raise _error(expression)
        yield found[0]
        position = found.end()
        while position and expression[position : position + 1] == " ":
            position += 1
    if expression.endswith(" "):
        raise _error(expression)


def _check(node: ast.expr, expression: str) -> None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            children: list[ast.expr] = []
        case ast.Name():
            children = []
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            children = [left, right]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            children = [operand]
        case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if (
            name in FUNCTIONS
        ):
            children = [a, b]
        case _:
            raise _error(expression)
    for child in children:
        _check(child, expression)


def _error(expression: str) -> ValueError:
    return ValueError(f"not a dimension expression: {expression[:100]!r}")
