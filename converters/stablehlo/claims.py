"""What is true of sizes, and JAX does not see: claims that its symbolic scopes take."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jax import export

from tpu_export.converters.stablehlo.shapes import DIM_FUNCTIONS
from tpu_export.runtime.expressions import constraint_names, evaluate, relation
from tpu_export.runtime.signature import Dim

_ORDERS = {
    "<=": "{b} >= {a}",
    "<": "{b} >= {a} + 1",
    ">=": "{a} >= {b}",
    ">": "{a} >= {b} + 1",
}


def equalities(values: Iterable[Any]) -> set[str]:
    """Return what makes sizes of arrays that are equal for every call look alike.

    Two poolings by 2 give ((h - 2)//2 - 1)//2 rows and one by 4 gives (h - 4)//4. Both are the
    same for every h, since (x//a + c)//b = (x + c*a)//(a*b) for whole a, b > 0. So are the sizes
    of x[1:], n - min(n, 1), and of x[:-1], max(n - 1, 0).

    Args:
        values: arrays, sizes, or anything else.

    Returns:
        claims for jax.export's symbolic scopes, such as
        "floordiv(floordiv(h, 2) + 1, 3) == floordiv(h + 2, 6)".
    """
    texts = {
        str(size)
        for value in values
        for size in getattr(value, "shape", (value,))
        if export.is_symbolic_dim(size)
    }
    nodes = [
        node for text in texts for node in ast.walk(ast.parse(text.replace("^", "**")))
    ]
    return {claim for node in nodes for claim in (*_divided(node), *_clipped(node))}


def orders(constraints: Iterable[str], dims: Sequence[Dim]) -> set[str]:
    """Return the constraints of a signature that order two sizes, as claims."""
    names = [dim.name for dim in dims]
    if not names:
        return set()
    free = dict(zip(names, export.symbolic_shape(", ".join(names)), strict=True))
    found = set()
    for constraint in constraints:
        left, compared, right = relation(constraint)
        if compared in _ORDERS and constraint_names(constraint) <= free.keys():
            a, b = (evaluate(side, free, DIM_FUNCTIONS) for side in (left, right))
            if export.is_symbolic_dim(a - b):
                found.add(_ORDERS[compared].format(a=a, b=b))
    return found


def _divided(node: ast.AST) -> Iterator[str]:
    if (outer := _division(node)) is None:
        return
    (dividend, b), offset = outer, 0
    match dividend:
        case ast.BinOp(dividend, ast.Add(), ast.Constant(value=int(offset))):
            pass
        case ast.BinOp(dividend, ast.Sub(), ast.Constant(value=int(less))):
            offset = -less
    if (inner := _division(dividend)) is not None:
        x, a = inner
        yield f"{_written(node)} == floordiv({_written(x)} + {offset * a}, {a * b})"


def _clipped(node: ast.AST) -> Iterator[str]:
    """Say min(x, a) and max(x, a) by max(x - a, 0)."""
    match node:
        case ast.Call(ast.Name(name), [x, ast.Constant(value=int(a))]):
            pass
        case ast.Call(ast.Name(name), [ast.Constant(value=int(a)), x]):
            pass
        case _:
            return
    rest = f"max({_written(x)} - {a}, 0)"
    if name == "min":
        yield f"{_written(node)} == {_written(x)} - {rest}"
    elif name == "max" and a != 0:
        yield f"{_written(node)} == {a} + {rest}"


def _division(node: ast.AST) -> tuple[ast.expr, int] | None:
    """Return the dividend and the divisor of floordiv(x, 2), where that is a number."""
    match node:
        case ast.Call(
            ast.Name("floordiv"), [dividend, ast.Constant(value=int(divisor))]
        ):
            return (dividend, divisor) if divisor > 0 else None
    return None


def _written(node: ast.AST) -> str:
    return ast.unparse(node).replace(" ** ", "^")
