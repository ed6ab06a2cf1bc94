"""What of an equation must have one width, and what has a width of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jax.extend.core import JaxprEqn

# Primitives whose whole numbers have one dtype, and that mean the same in 32 bits as in 64
# where all of these fit. (Left out: clz and population_count, which count bits; scatter-add
# and others that hold a program for two numbers; what makes floats.)
_UNIFORM = frozenset(
    (
        "abs", "add", "and", "broadcast_in_dim", "clamp", "concatenate", "copy", "cummax",
        "cummin", "cumsum", "div", "dot_general", "eq", "eq_to", "ge", "gt",
        "integer_pow", "le", "le_to", "lt", "lt_to", "max", "min", "mul", "ne", "neg",
        "not", "or", "pad", "reduce_max", "reduce_min", "reduce_sum", "rem", "reshape",
        "rev", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical",
        "sign", "slice", "split", "square", "squeeze", "sub", "transpose", "xor",
    )
)  # fmt: skip
# They only move values: not worth a conversion of their own.
MOVES = frozenset(
    (
        "copy", "dynamic_slice", "gather", "reshape", "rev", "slice", "split", "squeeze",
        "transpose",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """Operands and results that have one dtype.

    Attributes:
        operands: their places in the equation.
        results: their places.
        parameter: the equation's parameter that names the dtype of the results.
    """

    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()
    parameter: str | None = None


def groups(eqn: JaxprEqn) -> list[Group]:
    """Return what of an equation can be in 32 bits; operands left out stay in 64."""
    name = eqn.primitive.name
    if name in _UNIFORM:
        operands = tuple(range(name == "select_n", len(eqn.invars)))
        preferred = eqn.params.get("preferred_element_type")
        parameter = "preferred_element_type" if preferred is not None else None
        return [Group(operands, tuple(range(len(eqn.outvars))), parameter)]
    return [*_SEPARATE[name](eqn)] if name in _SEPARATE else []


def is_known(eqn: JaxprEqn) -> bool:
    """Whether the equation's results can be in 32 bits."""
    return eqn.primitive.name in _UNIFORM or eqn.primitive.name in _SEPARATE


def _rest(eqn: JaxprEqn, start: int) -> Group:
    return Group(tuple(range(start, len(eqn.invars))))


def _each(eqn: JaxprEqn) -> Iterator[Group]:
    return (Group((i,), (i,)) for i in range(len(eqn.invars)))


_SEPARATE: dict[str, Callable[[JaxprEqn], Iterator[Group]]] = {
    "convert_element_type": lambda eqn: iter(
        (Group((0,)), Group((), (0,), "new_dtype"))
    ),
    "iota": lambda eqn: iter((Group((), (0,), "dtype"),)),
    "argmax": lambda eqn: iter((Group((0,)), Group((), (0,), "index_dtype"))),
    "argmin": lambda eqn: iter((Group((0,)), Group((), (0,), "index_dtype"))),
    "gather": lambda eqn: iter((Group((0,), (0,)), Group((1,)))),
    "dynamic_slice": lambda eqn: iter((Group((0,), (0,)), _rest(eqn, 1))),
    "dynamic_update_slice": lambda eqn: iter((Group((0, 1), (0,)), _rest(eqn, 2))),
    "sort": _each,
    "optimization_barrier": _each,
    "top_k": lambda eqn: iter((Group((0,), (0,)),)),
    **dict.fromkeys(
        (
            "scatter",
            "scatter-add",
            "scatter-max",
            "scatter-min",
            "scatter-mul",
            "scatter-sub",
        ),
        lambda eqn: iter((Group((1,)),)),
    ),
}
