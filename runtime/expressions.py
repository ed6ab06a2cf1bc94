"""Dimension expressions such as "2*batch + seq//2": parsed strictly, evaluated on anything.

The grammar is Python's: integers, names, + - * // %, unary minus, max(a, b), min(a, b).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
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
MAX_LENGTH = 1000


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
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return value
            case ast.Name(id=name) if name in values:
                return values[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](visit(left), visit(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -visit(operand)
            case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if (
                name in functions
            ):
                return functions[name](visit(a), visit(b))
        message = f"not a dimension expression: {expression!r}"
        raise ValueError(message)

    if len(expression) > MAX_LENGTH:
        message = "a dimension expression is too long"
        raise ValueError(message)
    try:
        return visit(ast.parse(expression, mode="eval").body)
    except (SyntaxError, RecursionError, ZeroDivisionError) as error:
        message = f"not a dimension expression: {expression!r}"
        raise ValueError(message) from error
