"""Primitives that LiteRT has no kernel for, or another meaning, as ones that compute the same.

Measured on litert-converter 0.5 with ai-edge-litert 2.3: its remainder has the sign of the
divisor, 64-bit integers cannot be divided, and of 8 and 16 bits there are few kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from tpu_export.converters.stablehlo.inline import Atom, called, inlined
from tpu_export.converters.stablehlo.litert_bits import (
    bits_and,
    bits_not,
    bits_or,
    bits_xor,
    shift_left,
    shift_right,
)
from tpu_export.converters.stablehlo.litert_division import divided, magnitude
from tpu_export.converters.stablehlo.operands import HALF_BITS

Form: TypeAlias = Callable[..., Any]
_SCOPE = "litert_form"  # what a form is made of has no further form
_NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
_COMPARED = ("eq", "ge", "gt", "le", "lt", "ne", "select_n")
_COMPUTED = ("abs", "add", "clamp", "div", "integer_pow", "mul", "neg", "rem", "sub")
_EXTREMES = ("max", "min", "reduce_max", "reduce_min", "reduce_sum", "sign")
_BITS = ("and", "or", "xor", "not", "shift_left", "shift_right_arithmetic")
_WIDENED = frozenset(
    (*_COMPARED, *_COMPUTED, *_EXTREMES, *_BITS, "shift_right_logical", "pad", "rev")
)
# What only moves elements has kernels of 8, 32 and 64 bits; the type is one of those.
_JOINED = ("concatenate", "stack", "broadcast_in_dim", "pad")
_MOVED = frozenset((*_JOINED, "dynamic_slice", "gather", "rev", "slice", "transpose"))
_MOVED_AS = {"int16": jnp.int32, "uint16": jnp.int32, "uint32": jnp.int64}


def litert_forms(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the program with such primitives replaced; itself if it has none."""
    if not _needs(closed.jaxpr):
        return closed
    with jax.enable_x64(True):
        equations, results = inlined(closed.jaxpr, _body)
    equations = [eqn.replace(params=_inner(eqn.params)) for eqn in equations]
    jaxpr = closed.jaxpr.replace(eqns=equations, outvars=results)
    return ClosedJaxpr(jaxpr, closed.consts)


def _needs(jaxpr: Jaxpr) -> bool:
    return any(
        _form(eqn) is not None or any(_needs(c.jaxpr) for c in _programs(eqn.params))
        for eqn in jaxpr.eqns
    )


def _programs(params: dict[str, Any]) -> list[ClosedJaxpr]:
    values = [x for p in params.values() for x in (p if isinstance(p, tuple) else [p])]
    return [x for x in values if isinstance(x, ClosedJaxpr)]


def _inner(params: dict[str, Any]) -> dict[str, Any]:
    """Return an equation's parameters with the forms in its branches and bodies."""

    def formed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(formed, value))
        return litert_forms(value) if isinstance(value, ClosedJaxpr) else value

    return {k: formed(v) if _programs({k: v}) else v for k, v in params.items()}


def _body(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[Atom]] | None:
    form = _form(eqn)
    if form is None:
        return called(eqn)

    def function(*operands: Array) -> Any:
        with jax.named_scope(_SCOPE):
            return form(*operands, **eqn.params)

    avals: list[Any] = [v.aval for v in eqn.invars]
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
    made = jax.make_jaxpr(function)(*shapes)
    assert not made.consts
    return made.jaxpr, eqn.invars


def _form(eqn: JaxprEqn) -> Form | None:
    if not eqn.invars or _SCOPE in str(eqn.source_info.name_stack):
        return None
    aval: Any = eqn.invars[-1].aval
    name, dtype = eqn.primitive.name, str(getattr(aval, "dtype", ""))
    if dtype in _NARROW and name in _WIDENED:
        return _widened(eqn.primitive, dtype, jnp.int32)
    operand: Any = eqn.invars[0].aval
    moved = str(getattr(operand, "dtype", ""))
    if moved in _MOVED_AS and name in _MOVED:
        return _widened(eqn.primitive, moved, _MOVED_AS[moved])
    if name == "dot_general" and "int" in dtype:
        return _whole_product
    if name == "dot_general":
        return None if _in_order(eqn.params["dimension_numbers"]) else _ordered_product
    kind = "int" if dtype.startswith("int") else dtype
    return _FORMS.get((name, dtype)) or _FORMS.get((name, kind))


def _widened(primitive: Any, dtype: str, wide_dtype: Any) -> Form:
    """Compute in more bits, and keep the low ones."""

    def form(*operands: Array, **params: Any) -> Any:
        wide = [x.astype(wide_dtype) if x.dtype == dtype else x for x in operands]
        name = primitive.name.replace("logical", "arithmetic")  # the sign is 0 now
        plain = _FORMS.get((name, "int"), primitive.bind)
        found = plain(*wide, **params)
        results = found if isinstance(found, list | tuple) else [found]
        kept = [y if y.dtype == bool else y.astype(dtype) for y in results]
        return kept if primitive.multiple_results else kept[0]

    return form


def _in_order(dimension_numbers: Any) -> bool:
    """Whether dimensions that go together have the same order in both operands.

    The converter makes one dimension of them, without a look at their order. More than three that
    both have are beyond its kernels.
    """
    (taken, others), batch = dimension_numbers
    pairs = sorted(zip(taken, others, strict=True))
    orders = [[y for _, y in pairs], *batch]
    few = len(batch[0]) <= 3
    return few and all(list(dims) == sorted(dims) for dims in orders)


def _ordered_product(
    x: Array, y: Array, *, dimension_numbers: Any, **params: Any
) -> Array:
    """Multiply x as [batch, free, taken] with y as [batch, taken, free]."""
    left, right, shape = _matrices(x, y, dimension_numbers)
    dims = (((2,), (1,)), ((0,), (0,)))
    return lax.dot_general(left, right, dims, **params).reshape(shape)


def _whole_product(
    x: Array, y: Array, *, dimension_numbers: Any, preferred_element_type: Any, **_: Any
) -> Array:
    """Sum products of integers, for which there is no kernel, in 32 bits or more."""
    kind = preferred_element_type or jnp.promote_types(x.dtype, y.dtype)
    left, right, shape = _matrices(x, y, dimension_numbers)
    wide = jnp.promote_types(kind, jnp.int32)
    terms = left.astype(wide)[..., None] * right.astype(wide)[:, None]
    return jnp.sum(terms, 2, dtype=wide).reshape(shape).astype(kind)


def _matrices(
    x: Array, y: Array, dimension_numbers: Any
) -> tuple[Array, Array, list[int]]:
    """Return [batch, free, taken] of x, [batch, taken, free] of y, the product's shape."""
    (x_taken, y_taken), (x_batch, y_batch) = dimension_numbers
    x_free = [d for d in range(x.ndim) if d not in {*x_taken, *x_batch}]
    y_free = [d for d in range(y.ndim) if d not in {*y_taken, *y_batch}]
    shape = [x.shape[d] for d in (*x_batch, *x_free)] + [y.shape[d] for d in y_free]
    left = _merged(x, x_batch, x_free, x_taken)
    return left, _merged(y, y_batch, y_taken, y_free), shape


def _merged(x: Array, *groups: Sequence[int]) -> Array:
    """Make one dimension of each group of dimensions."""
    moved = x.transpose(*(d for dims in groups for d in dims))
    return moved.reshape([prod(x.shape[d] for d in dims) for dims in groups])


def _whole_remainder(x: Array, y: Array) -> Array:
    """Of a remainder with the sign of either operand, make the one with the dividend's."""
    rest = lax.rem(x, y)
    return jnp.where((rest != 0) & ((rest < 0) != (x < 0)), rest - y, rest)


def _remainder(x: Array, y: Array) -> Array:
    rest = lax.rem(jnp.abs(x), jnp.abs(y))
    return jnp.where(x < 0, -rest, rest)


def _sign(x: Array) -> Array:
    return jnp.where(x > 0, 1, jnp.where(x < 0, -1, 0)).astype(x.dtype)


def _all(x: Array, *, axes: Sequence[int], **_: Any) -> Array:
    return lax.reduce_and(x, tuple(axes))


def _any(x: Array, *, axes: Sequence[int], **_: Any) -> Array:
    return lax.reduce_or(x, tuple(axes))


def _through_half(x: Array, *, exponent_bits: int, mantissa_bits: int) -> Array:
    """Cast there and back: LiteRT has no other way to round to a half type."""
    (half,) = (d for d, b in HALF_BITS.items() if b == (exponent_bits, mantissa_bits))
    return x.astype(half).astype(x.dtype)


# By dtype; "int" is any signed integer.
_FORMS: dict[tuple[str, str], Form] = {
    ("rem", "int"): _whole_remainder,
    ("rem", "float32"): _remainder,
    ("reduce_precision", "float32"): _through_half,
    ("div", "int64"): divided,
    ("abs", "int64"): magnitude,
    ("sign", "int64"): _sign,
    ("and", "int"): bits_and,
    ("or", "int"): bits_or,
    ("xor", "int"): bits_xor,
    ("not", "int"): bits_not,
    ("shift_left", "int"): shift_left,
    ("shift_right_arithmetic", "int"): shift_right,
    ("xor", "bool"): lambda x, y: x != y,
    ("max", "bool"): lambda x, y: x | y,
    ("min", "bool"): lambda x, y: x & y,
    ("lt", "bool"): lambda x, y: ~x & y,
    ("le", "bool"): lambda x, y: ~x | y,
    ("gt", "bool"): lambda x, y: x & ~y,
    ("ge", "bool"): lambda x, y: x | ~y,
    ("reduce_min", "bool"): _all,
    ("reduce_max", "bool"): _any,
}
