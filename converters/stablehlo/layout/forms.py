"""How an equation on [N, C, ...] is written for [N, ..., C].

A form says which operands and results move their channels, and the parameters then. What has
no form keeps its operands and results as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from jax import lax
from jax.extend.core import JaxprEqn, Literal

Shape: TypeAlias = Sequence[Any]


@dataclass(frozen=True)
class Form:
    """How to write an equation.

    Attributes:
        operands: which of them come with their channels last; results: likewise.
        params: those that change; squeezed: the first operand's shape before, where it must
            lose axes of one.
    """

    operands: tuple[bool, ...]
    results: tuple[bool, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    squeezed: tuple[Any, ...] | None = None


def to_last(rank: int) -> tuple[int, ...]:
    """Return the order of dimensions that moves the channels to the end."""
    return (0, *range(2, rank), 1)


def from_last(rank: int) -> tuple[int, ...]:
    """Return the order that moves them back."""
    return (0, rank - 1, *range(1, rank - 1))


def last(values: Shape) -> tuple[Any, ...]:
    """Return what is known of each dimension in the order with channels last."""
    return (values[0], *values[2:], values[1])


def first(values: Shape) -> tuple[Any, ...]:
    """Return the same in torch's order, so that it undoes `last`."""
    return (values[0], values[-1], *values[1:-1])


def place(dim: int, rank: int) -> int:
    """Return where a dimension is when channels are last."""
    return to_last(rank).index(dim)


def moves_nothing(shape: Shape) -> bool:
    """Whether only axes of one change places, so that a reshape does."""
    order = [d for d in to_last(len(shape)) if shape[d] != 1]
    return order == sorted(order)


def form_of(eqn: JaxprEqn) -> Form | None:
    """Return the form of an equation, None where it has none."""
    if eqn.effects:
        return None
    name = eqn.primitive.name
    if name in _POINTWISE:
        return _pointwise(eqn)
    rule = _RULES.get(name)
    return rule(eqn) if rule else None


def shape_of(value: Any) -> tuple[Any, ...]:
    """Return the shape of a variable or literal."""
    return tuple(value.aval.shape)


def _pointwise(eqn: JaxprEqn) -> Form | None:
    rank = len(shape_of(eqn.outvars[0]))
    ranks = [len(shape_of(v)) for v in eqn.invars]
    if rank < 3 or not {0, rank}.issuperset(ranks):
        return None
    return Form(tuple(r == rank for r in ranks), (True,) * len(eqn.outvars))


def _by_dimension(*names: str) -> Callable[[JaxprEqn], Form | None]:
    """Take parameters that list something of each dimension."""

    def rule(eqn: JaxprEqn) -> Form | None:
        if len(shape_of(eqn.outvars[0])) < 3:
            return None
        params = {n: last(eqn.params[n]) for n in names if eqn.params[n] is not None}
        rest = (False,) * (len(eqn.invars) - 1)
        return Form((True, *rest), (True,), params)

    return rule


def _along(name: str) -> Callable[[JaxprEqn], Form | None]:
    """Take a parameter that is a dimension, or several."""

    def rule(eqn: JaxprEqn) -> Form | None:
        rank, given = len(shape_of(eqn.outvars[0])), eqn.params[name]
        if rank < 3:
            return None
        moved: Any = (
            tuple(place(d, rank) for d in given)
            if isinstance(given, tuple)
            else place(given, rank)
        )
        results = (True,) * len(eqn.outvars)
        return Form((True,) * len(eqn.invars), results, {name: moved})

    return rule


def _dropping(name: str) -> Callable[[JaxprEqn], Form | None]:
    """Take a parameter with the dimensions that the result does not have."""

    def rule(eqn: JaxprEqn) -> Form | None:
        rank = len(shape_of(eqn.invars[0]))
        if rank < 3 or len(eqn.invars) > 1:
            return None
        dropped = [d % rank for d in eqn.params[name]]
        kept = [d for d in to_last(rank) if d not in dropped]
        moves = kept != sorted(kept)
        if moves and (len(kept) < 3 or sorted(kept)[:2] != [0, 1]):
            return None
        params = {name: tuple(sorted(place(d, rank) for d in dropped))}
        return Form((True,), (moves,), params)

    return rule


def _broadcast(eqn: JaxprEqn) -> Form | None:
    shape, dims = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    rank = len(shape)
    if rank < 3 or len(eqn.invars) > 1:
        return None
    params = {"shape": last(shape)}
    given = shape_of(eqn.invars[0])
    follows = len(given) > 2 and tuple(dims[:2]) == (0, 1)
    moved = [place(d, rank) for d in (last(dims) if follows else dims)]
    squeezed = None
    if moved != sorted(moved):
        kept = [i for i, size in enumerate(given) if size != 1]
        squeezed, moved = tuple(given[i] for i in kept), [moved[i] for i in kept]
        if moved != sorted(moved):
            return None
    params["broadcast_dimensions"] = tuple(moved)
    return Form((follows,), (True,), params, squeezed)


def _reshape(eqn: JaxprEqn) -> Form | None:
    given, new = shape_of(eqn.invars[0]), eqn.params["new_sizes"]
    if eqn.params["dimensions"] is not None or len(eqn.invars) > 1:
        return None
    images = len(given) > 2 and len(new) > 2
    if images and tuple(given[:2]) == tuple(new[:2]):
        return Form((True,), (True,), {"new_sizes": last(new)})
    takes = len(given) > 2 and moves_nothing(given)
    gives = len(new) > 2 and moves_nothing(new)
    if not takes and not gives:
        return None
    return Form((takes,), (gives,), {"new_sizes": last(new)} if gives else {})


def _iota(eqn: JaxprEqn) -> Form | None:
    shape = eqn.params["shape"]
    if len(shape) < 3 or eqn.invars:
        return None
    dim = place(eqn.params["dimension"], len(shape))
    return Form((), (True,), {"shape": last(shape), "dimension": dim})


def _gather(eqn: JaxprEqn) -> Form | None:
    """Take whole slices along one dimension, at a list of places."""
    shape, indices = map(shape_of, eqn.invars[:2])
    rank, numbers = len(shape), eqn.params["dimension_numbers"]
    dims = numbers.start_index_map
    if rank < 3 or len(indices) != 2 or len(dims) != 1:
        return None
    (dim,) = dims
    sizes = (*shape[:dim], 1, *shape[dim + 1 :])
    rest = tuple(d for d in range(rank) if d != dim)
    plain = lax.GatherDimensionNumbers(rest, dims, dims)
    if numbers != plain or tuple(eqn.params["slice_sizes"]) != sizes:
        return None
    moved = place(dim, rank)
    rest = tuple(d for d in range(rank) if d != moved)
    params = {
        "dimension_numbers": lax.GatherDimensionNumbers(rest, (moved,), (moved,)),
        "slice_sizes": last(sizes),
    }
    return Form((True, False), (True,), params)


_NUMBERS = (
    "abs add ceil clamp div floor integer_pow max min mul neg pow rem round sign sub"
)
_TESTS = "and eq ge gt is_finite le lt ne not or select_n xor"
_ROOTS = "cbrt exp exp2 expm1 log log1p logistic rsqrt sqrt square"
_CURVES = (
    "acos acosh asin asinh atan atan2 atanh cos cosh erf erf_inv erfc sin sinh tan tanh"
)
_CASTS = "convert_element_type copy copy_p nextafter reduce_precision digamma lgamma"
_BITS = "population_count shift_left shift_right_arithmetic shift_right_logical"
_POINTWISE = frozenset(
    " ".join((_NUMBERS, _TESTS, _ROOTS, _CURVES, _CASTS, _BITS)).split()
)
_WINDOW = ("window_dimensions", "window_strides", "padding")
_WINDOWS = _by_dimension(*_WINDOW, "base_dilation", "window_dilation")
_REDUCED = ("sum", "max", "min", "prod", "and", "or", "xor")
_RULES: dict[str, Callable[[JaxprEqn], Form | None]] = {
    "pad": _by_dimension("padding_config"),
    "slice": _by_dimension("start_indices", "limit_indices", "strides"),
    "concatenate": _along("dimension"),
    "split": _along("axis"),
    "rev": _along("dimensions"),
    "squeeze": _dropping("dimensions"),
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "iota": _iota,
    "gather": _gather,
    "argmax": _dropping("axes"),
    "argmin": _dropping("axes"),
    **{f"reduce_{name}": _dropping("axes") for name in _REDUCED},
    **{f"reduce_window_{n}": _WINDOWS for n in ("max", "min", "sum")},
    **{f"cum{n}": _along("axis") for n in ("sum", "prod", "max", "min", "logsumexp")},
}


def is_variable(value: Any) -> bool:
    """Whether a value has a name; literals have none."""
    return not isinstance(value, Literal)
