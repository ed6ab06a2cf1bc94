"""Symbolic dimensions: torch's symbols as JAX dimension variables of one scope.

Only the shapes of inputs are translated; every later shape is JAX's own.
"""

from __future__ import annotations

import ast
import contextlib
import math
import operator
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import Array, export

from tpu_export.converters.stablehlo.empty_dims import variables
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.reals import OPERATORS, Real, real, whole, whole_up
from tpu_export.runtime.expressions import FUNCTIONS, evaluate
from tpu_export.runtime.signature import Dim, TensorSpec

_COMPARISONS = (
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
)
PYTHON_OPS: dict[object, Callable[..., Any]] = {
    torch.sym_max: lambda a, b: jax.core.max_dim(a, b),
    torch.sym_min: lambda a, b: jax.core.min_dim(a, b),
    **OPERATORS,
    operator.floordiv: lambda a, b: _quotient(a, b),
    torch.sym_float: real,
    torch.sym_int: whole,
    **{op: lambda a, b, op=op: _compared(op, a, b) for op in _COMPARISONS},
    torch.sym_not: lambda c: jnp.logical_not(c) if isinstance(c, Array) else not c,
    math.trunc: whole,
    math.floor: whole,
    math.ceil: whole_up,
    torch.sym_ite: lambda c, a, b: _chosen(c, a, b),
}


def _compared(op: Callable[..., Any], a: Any, b: Any) -> Any:
    """Compare sizes: a bool where their ranges decide it, else a value of the call."""
    if not any(export.is_symbolic_dim(x) or isinstance(x, Real) for x in (a, b)):
        return op(a, b)
    if not any(isinstance(x, Real) for x in (a, b)):
        with contextlib.suppress(jax.errors.InconclusiveDimensionOperation):
            if op not in (operator.eq, operator.ne):
                return op(a, b)
            # JAX's own == is False where it cannot tell.
            return bool(a < b or a > b) == (op is operator.ne)
    return op(jnp.asarray(a), jnp.asarray(b))


def _chosen(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Array):
        message = "a size that one of the call's own sizes chooses"
        raise UnsupportedOptionError(
            message, hint="give the Dims a range (min=, max=) that decides it"
        )
    return a if condition else b


def _quotient(a: Any, b: Any) -> Any:
    """Return a // b of sizes.

    JAX does not see that (q*b + b - 1) // b is q, which is how torch counts steps of b.
    """
    if export.is_symbolic_dim(b) and _is_positive(b):
        steps = a - b + 1
        if export.is_symbolic_dim(steps) and steps % b == 0:
            return steps // b
    return a // b


def _is_positive(size: Any) -> bool:
    try:
        return bool(size >= 1)
    except jax.errors.InconclusiveDimensionOperation:
        return False


def input_shapes(
    inputs: Sequence[TensorSpec],
    dims: Sequence[Dim],
    equalities: Sequence[str] = (),
    empty: AbstractSet[str] = frozenset(),
) -> list[jax.ShapeDtypeStruct]:
    """Return the shapes of a signature's inputs in one symbolic scope.

    Args:
        inputs: with sizes in dimension names.
        dims: the dimensions.
        equalities: claims on them.
        empty: names of those that count as 0 or more; others are at least 1.
    """
    names = [dim.name for dim in dims]
    bounds = [c for dim in dims for c in _constraints(dim, dim.name in empty)]
    free = variables(names, bounds, equalities, empty)
    return [
        jax.ShapeDtypeStruct(
            tuple(
                size if isinstance(size, int) else evaluate(size, free, DIM_FUNCTIONS)
                for size in spec.shape
            ),
            jax.numpy.dtype(spec.dtype),
        )
        for spec in inputs
    ]


DIM_FUNCTIONS = {
    **FUNCTIONS,
    "max": jax.core.max_dim,
    "min": jax.core.min_dim,
}


def spelled(size: Any) -> int | str:
    """Return a size as an int, or in the grammar of dimension expressions.

    JAX writes a power as "b^2".
    """
    if isinstance(size, int):
        return size
    text = str(size)
    if "^" not in text:
        return text
    return ast.unparse(_Products().visit(ast.parse(text.replace("^", "**"))))


class _Products(ast.NodeTransformer):
    """Powers of whole exponents as products."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:  # ast's protocol
        self.generic_visit(node)
        match node:
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=int(n))):
                product = base
                for _ in range(n - 1):
                    product = ast.BinOp(product, ast.Mult(), base)
                return product
        return node


def _constraints(dim: Dim, empty: bool) -> list[str]:
    bounds = [f"{dim.name} >= {max(dim.minimum, 0 if empty else 1)}"]
    if dim.maximum is not None:
        bounds.append(f"{dim.name} <= {dim.maximum}")
    return bounds
