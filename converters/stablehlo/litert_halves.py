"""Half types inside a program for LiteRT, as float32 that is rounded where torch rounds.

Of float16 and bfloat16 LiteRT's CPU kernels have casts, which round as torch's do (every value of
both, ties, subnormals, NaN and overflow, were compared), and little else. So what a half type held
is float32 here, and what is computed is rounded by reduce_precision, of which litert_forms.py
makes casts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from tpu_export.converters.stablehlo.inline import Atom, called, inlined
from tpu_export.converters.stablehlo.location import spoken
from tpu_export.converters.stablehlo.operands import HALF_BITS, rounded
from tpu_export.converters.stablehlo.ops.ranking import LiteRtUnsupportedError

_SCOPE = "litert_half"  # what is made here is final
# What gives back what it was given, or a number that any half type holds.
_MOVED = (
    "broadcast_in_dim concatenate copy dynamic_slice expand_dims gather pad reshape"
)
_CHOSEN = "abs clamp cummax cummin max min neg reduce_max reduce_min select_n sign"
_WHOLE = "ceil floor reduce_window_max rev round slice split squeeze transpose"
_EXACT = frozenset(f"{_MOVED} {_CHOSEN} {_WHOLE}".split())


def is_half(dtype: Any) -> bool:
    """Whether a dtype is float16 or bfloat16."""
    return dtype in HALF_BITS


def without_halves(closed: ClosedJaxpr, n_weights: int) -> ClosedJaxpr:
    """Return the program without arithmetic in half types; itself if it has none.

    Args:
        closed: of any dtypes. The first `n_weights` arguments become float32 where they are of a
            half type; other arguments and results keep their dtypes.

    Raises:
        LiteRtUnsupportedError: the bits of a half type are read.
    """
    if not _has_halves(closed.jaxpr):
        return closed
    _refuse_bits(closed.jaxpr)
    with jax.enable_x64(True):
        wide = _widened(closed)
        kept: list[Any] = [v.aval for v in closed.jaxpr.invars[n_weights:]]
        results: list[Any] = [v.aval for v in closed.jaxpr.outvars]
        if not any(is_half(aval.dtype) for aval in (*kept, *results)):
            return wide

        def function(*arrays: Array) -> list[Array]:
            weights, rest = arrays[:n_weights], arrays[n_weights:]
            found = jaxpr_as_fun(wide)(*weights, *map(_wide, rest))
            return [y.astype(a.dtype) for y, a in zip(found, results, strict=True)]

        given: list[Any] = [v.aval for v in wide.jaxpr.invars[:n_weights]]
        return jax.make_jaxpr(function)(*map(_shape, (*given, *kept)))


def _refuse_bits(jaxpr: Jaxpr) -> None:
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "bitcast_convert_type" and any(map(_is_half_atom, eqn.invars)):
            raise LiteRtUnsupportedError(
                f"LiteRT has no bits of {eqn.invars[0].aval}: "
                f"{spoken(str(eqn.source_info.name_stack))}",
                hint="compute in float32 there, or export for cloud-tpu",
            )
        for inner in _programs(eqn.params):
            _refuse_bits(inner.jaxpr)


def _shape(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _wide(x: Any) -> Any:
    return x.astype(jnp.float32) if is_half(x.dtype) else x


def _has_halves(jaxpr: Jaxpr) -> bool:
    values = [v for e in jaxpr.eqns for v in (*e.invars, *e.outvars)]
    inner = [c.jaxpr for e in jaxpr.eqns for c in _programs(e.params)]
    mine = any(map(_is_half_atom, (*values, *jaxpr.invars, *jaxpr.outvars)))
    return mine or any(map(_has_halves, inner))


def _is_half_atom(v: Atom) -> bool:
    return is_half(getattr(v.aval, "dtype", None))


def _programs(params: dict[str, Any]) -> list[ClosedJaxpr]:
    values = [x for p in params.values() for x in (p if isinstance(p, tuple) else [p])]
    return [x for x in values if isinstance(x, ClosedJaxpr)]


def _widened(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Return the program whose arguments and results are float32 for those of half types."""
    jaxpr = closed.jaxpr
    taken = (*jaxpr.constvars, *jaxpr.invars)
    fresh = {
        v: Var(v.aval.update(dtype=jnp.float32)) for v in taken if _is_half_atom(v)
    }
    equations, results = inlined(jaxpr, lambda eqn: _body(eqn, fresh))

    def new(v: Atom) -> Atom:
        return v if isinstance(v, Literal) else fresh.get(v, v)

    equations = [e.replace(invars=list(map(new, e.invars))) for e in equations]
    made = jaxpr.replace(
        constvars=[*map(new, jaxpr.constvars)],
        invars=[*map(new, jaxpr.invars)],
        outvars=[_wide_literal(new(v)) for v in results],
        eqns=equations,
    )
    return ClosedJaxpr(made, [_wide(jnp.asarray(c)) for c in closed.consts])


def _wide_literal(v: Atom) -> Atom:
    if not isinstance(v, Literal) or not _is_half_atom(v):
        return v
    aval: Any = v.aval
    return Literal(np.asarray(v.val, np.float32), aval.update(dtype=jnp.float32))


def _value(literal: Any) -> Any:
    return _wide(np.asarray(literal.val, literal.aval.dtype))


def _body(
    eqn: JaxprEqn, fresh: Mapping[Var, Var]
) -> tuple[Jaxpr, Sequence[Atom]] | None:
    """Return what stands for an equation; operands that were of half types are float32."""
    plain = called(eqn)
    final = _SCOPE in str(eqn.source_info.name_stack)
    if plain is not None or final or not _touched(eqn):
        return plain
    operands = [v if isinstance(v, Literal) else fresh.get(v, v) for v in eqn.invars]
    free = [v for v in operands if not isinstance(v, Literal)]

    def function(*arrays: Array) -> list[Array]:
        rest = iter(arrays)
        filled = [_value(v) if isinstance(v, Literal) else next(rest) for v in operands]
        with jax.named_scope(_SCOPE):
            found = eqn.primitive.bind(*filled, **_wide_params(eqn.params))
            listed = found if eqn.primitive.multiple_results else [found]
            return [
                _rounded(y, v.aval, eqn)
                for y, v in zip(listed, eqn.outvars, strict=True)
            ]

    made = jax.make_jaxpr(function)(*(_shape(v.aval) for v in free))
    assert not made.consts
    return made.jaxpr, free


def _touched(eqn: JaxprEqn) -> bool:
    literals = [v for v in eqn.invars if isinstance(v, Literal)]
    inner = any(_has_halves(c.jaxpr) for c in _programs(eqn.params))
    return inner or any(map(_is_half_atom, (*literals, *eqn.outvars)))


def _wide_params(params: dict[str, Any]) -> dict[str, Any]:
    def widened(value: Any) -> Any:
        if isinstance(value, tuple):
            same = tuple(map(widened, value))
            return same if any(_programs({"": value})) else value
        if isinstance(value, ClosedJaxpr):
            return _widened(value)
        half = isinstance(value, np.dtype) and is_half(value)
        return np.dtype(np.float32) if half else value

    return {k: widened(v) for k, v in params.items()}


def _rounded(y: Array, aval: Any, eqn: JaxprEqn) -> Array:
    exact = eqn.primitive.name in _EXACT or any(_programs(eqn.params))
    if exact or not is_half(aval.dtype):
        return y
    return rounded(y, np.dtype(aval.dtype))
