"""Primitives that LiteRT has no kernel for, or another meaning, as ones that compute the same.

Measured on litert-converter 0.5 with ai-edge-litert 2.3: its remainder has the sign of the
divisor, 64-bit integers cannot be divided, and of 8 and 16 bits there are few kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from tpu_export.converters.stablehlo.inline import Atom, called, inlined

Form: TypeAlias = Callable[..., Any]
_SCOPE = "litert_form"  # what a form is made of has no further form
_NARROW = frozenset({"int8", "uint8", "int16"})
_COMPARED = ("eq", "ge", "gt", "le", "lt", "ne", "select_n")
_COMPUTED = ("abs", "add", "clamp", "div", "integer_pow", "mul", "neg", "rem", "sub")
_EXTREMES = ("max", "min", "reduce_max", "reduce_min", "reduce_sum", "sign")
_WIDENED = frozenset((*_COMPARED, *_COMPUTED, *_EXTREMES, "pad", "rev"))


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
        return _widened(eqn.primitive, dtype)
    kind = "int" if dtype.startswith("int") else dtype
    return _FORMS.get((name, dtype)) or _FORMS.get((name, kind))


def _widened(primitive: Any, dtype: str) -> Form:
    """Compute in 32 bits, and keep the low ones."""

    def form(*operands: Array, **params: Any) -> Any:
        wide = [x.astype(jnp.int32) if x.dtype == dtype else x for x in operands]
        plain = _FORMS.get((primitive.name, "int"), primitive.bind)
        found = plain(*wide, **params)
        results = found if isinstance(found, list | tuple) else [found]
        kept = [y if y.dtype == bool else y.astype(dtype) for y in results]
        return kept if primitive.multiple_results else kept[0]

    return form


def _whole_remainder(x: Array, y: Array) -> Array:
    """Of a remainder with the sign of either operand, make the one with the dividend's."""
    rest = lax.rem(x, y)
    return jnp.where((rest != 0) & ((rest < 0) != (x < 0)), rest - y, rest)


def _remainder(x: Array, y: Array) -> Array:
    rest = lax.rem(jnp.abs(x), jnp.abs(y))
    return jnp.where(x < 0, -rest, rest)


def _quotient(x: Array, y: Array) -> Array:
    """Divide in 64 bits: float32 estimates of what is left, to the last unit."""
    bound = np.float32(2.0**62)
    total, rest = jnp.zeros_like(x), x
    for _ in range(4):  # each leaves 2**-21 of the rest, or less than a divisor
        ratio = rest.astype(jnp.float32) / y.astype(jnp.float32)
        step = jnp.minimum(jnp.maximum(ratio, -bound), bound).astype(jnp.int64)
        total, rest = total + step, rest - step * y
    one = jnp.where((rest < 0) == (y < 0), 1, -1)
    over = _magnitude(rest) >= _magnitude(y)
    total, rest = (
        jnp.where(over, total + one, total),
        jnp.where(over, rest - one * y, rest),
    )
    past = (rest != 0) & ((rest < 0) != (x < 0))
    return jnp.where(past, total - jnp.where((x < 0) == (y < 0), 1, -1), total)


def _magnitude(x: Array, **_: Any) -> Array:
    return jnp.where(x < 0, -x, x)


def _sign(x: Array) -> Array:
    return jnp.where(x > 0, 1, jnp.where(x < 0, -1, 0)).astype(x.dtype)


def _all(x: Array, *, axes: Sequence[int], **_: Any) -> Array:
    return lax.reduce_and(x, tuple(axes))


def _any(x: Array, *, axes: Sequence[int], **_: Any) -> Array:
    return lax.reduce_or(x, tuple(axes))


# By dtype; "int" is any signed integer.
_FORMS: dict[tuple[str, str], Form] = {
    ("rem", "int"): _whole_remainder,
    ("rem", "float32"): _remainder,
    ("div", "int64"): _quotient,
    ("abs", "int64"): _magnitude,
    ("sign", "int64"): _sign,
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
