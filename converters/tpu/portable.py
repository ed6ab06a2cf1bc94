"""Call a portable StableHLO artifact from JAX, so that jax.jit can compile it."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax import export

from tpu_export.runtime.signature import DimSize, FunctionSpec, Slot

# What lowering exports with: no platform index, dimension sizes from shapes.
_CONVENTION: Final = 10
_OPERATORS: Final[dict[type, Callable[..., int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
_FUNCTIONS: Final[dict[str, Callable[..., int]]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max,
    "min": min,
}


def callable_from_portable(
    module: bytes, spec: FunctionSpec, platform: str
) -> Callable[..., tuple[jax.Array, ...]]:
    """Return a function of the spec's arguments, in order, that jax.jit can trace."""
    scope = export.SymbolicScope()
    arguments = tuple(_aval(slot, scope) for slot in spec.arguments)
    results = tuple(_aval(slot, scope) for slot in spec.results)
    n, m = len(arguments), len(results)
    return export.Exported(
        fun_name="main",
        in_tree=jax.tree.structure(((0,) * n, {})),
        in_avals=arguments,
        out_tree=jax.tree.structure((0,) * m),
        out_avals=results,
        _has_named_shardings=False,
        _in_named_shardings=(None,) * n,
        _out_named_shardings=(None,) * m,
        in_shardings_hlo=(None,) * n,
        out_shardings_hlo=(None,) * m,
        nr_devices=1,
        platforms=(platform,),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=module,
        calling_convention_version=_CONVENTION,
        module_kept_var_idx=tuple(range(n)),
        uses_global_constants=True,
        _get_vjp=None,
    ).call


def static_shapes(
    slots: Sequence[Slot], dims: Mapping[str, int]
) -> tuple[jax.core.ShapedArray, ...]:
    """Return the slots' shapes with every dynamic dimension bound to a size."""
    return tuple(
        jax.core.ShapedArray(
            tuple(evaluate(size, dims) for size in slot.shape), _dtype(slot)
        )
        for slot in slots
    )


def evaluate(size: DimSize, dims: Mapping[str, int]) -> int:
    """Return a dimension's size.

    >>> evaluate("2*seq + 1", {"seq": 3})
    7
    """
    return (
        size
        if isinstance(size, int)
        else _evaluate(ast.parse(size, mode="eval").body, dims)
    )


def _evaluate(node: ast.expr, dims: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return dims[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_evaluate(left, dims), _evaluate(right, dims))
        case ast.UnaryOp(op=op, operand=operand):
            return _OPERATORS[type(op)](_evaluate(operand, dims))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_evaluate(arg, dims) for arg in args))
    message = f"not a dimension expression: {ast.unparse(node)}"
    raise ValueError(message)


def _aval(slot: Slot, scope: export.SymbolicScope) -> jax.core.ShapedArray:
    shape = tuple(
        size if isinstance(size, int) else export.symbolic_shape(size, scope=scope)[0]
        for size in slot.shape
    )
    return jax.core.ShapedArray(shape, _dtype(slot))


def _dtype(slot: Slot) -> np.dtype[Any]:
    return jax.numpy.dtype(slot.dtype)


def layout_prepare_spec(
    main: FunctionSpec, prepare: FunctionSpec | None
) -> FunctionSpec:
    """Return the calling convention of the prepare program that fixes layouts.

    It takes every raw weight once, prepare's first, and gives every leading (weight or
    prepared) argument of main.
    """
    leading = tuple(s for s in main.arguments if s.kind in ("weight", "prepared"))
    raw = [*(prepare.arguments if prepare else ()), *leading]
    weights = {slot.name: slot for slot in raw if slot.kind == "weight"}
    return FunctionSpec(tuple(weights.values()), leading)


def host_features() -> tuple[str, ...]:
    """Return the CPU's feature flags, sorted."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line for line in file if line.startswith("flags")), "flags:")
    return tuple(sorted(flags.split(":")[1].split()))
