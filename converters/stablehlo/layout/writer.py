"""Write a program whose equations are channels-last or not, with moves between the two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jax import lax
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Var

from tpu_export.converters.stablehlo.layout.forms import (
    Form,
    from_last,
    is_variable,
    last,
    moves_nothing,
    shape_of,
    to_last,
)

if TYPE_CHECKING:
    from tpu_export.converters.stablehlo.layout.choice import Program


class Writer:
    """Equations so far, and what values of the old program are in the new one.

    For a value v, held[v, False] has its shape, and held[v, True] the same with the channels
    last; there is one of them or both.
    """

    def __init__(self) -> None:
        self.equations: list[JaxprEqn] = []
        self.held: dict[tuple[Var, bool], Any] = {}
        self.makers: dict[Var, JaxprEqn] = {}

    def argument(self, v: Var, *, is_last: bool = False) -> Var:
        """Take an argument; return it as it comes."""
        self.held[v, is_last] = _like(v, last(shape_of(v))) if is_last else v
        found: Var = self.held[v, is_last]
        return found

    def write(self, program: Program, labels: Sequence[bool]) -> None:
        """Write all equations."""
        turns = program.turns()
        written = zip(program.equations, program.forms, turns, labels, strict=True)
        for eqn, form, turn, is_last in written:
            self.makers.update(dict.fromkeys(eqn.outvars, eqn))
            if turn is not None:
                to_end = turn == "to last"
                moved = self.get(eqn.invars[0], to_end, eqn)
                self.held[eqn.outvars[0], not to_end] = moved
            elif form is not None and is_last:
                self._formed(eqn, form)
            else:
                invars = [self.get(v, False, eqn) for v in eqn.invars]
                self.equations.append(eqn.replace(invars=invars))
                self.held.update({(v, False): v for v in eqn.outvars})

    def get(self, v: Any, is_last: bool, reader: JaxprEqn | None) -> Any:
        """Return a value in an order of its dimensions, moved where it has another.

        The move gets the place of what is not channels-last: the reader, or the maker.
        """
        if not is_variable(v):
            return v
        if (v, is_last) not in self.held:
            maker = self.makers.get(v)
            cause = (maker or reader) if is_last else (reader or maker)
            assert cause is not None
            source = self.held[v, not is_last]
            self.held[v, is_last] = self._moved(v, source, is_last, cause)
        return self.held[v, is_last]

    def _formed(self, eqn: JaxprEqn, form: Form) -> None:
        pairs = zip(eqn.invars, form.operands, strict=True)
        invars = [self.get(v, follows, eqn) for v, follows in pairs]
        if form.squeezed is not None:
            invars[0] = self._reshaped(invars[0], form.squeezed, eqn)
        outvars = []
        for v, follows in zip(eqn.outvars, form.results, strict=True):
            new = _like(v, last(shape_of(v))) if follows else v
            self.held[v, follows] = new
            outvars.append(new)
        params = {**eqn.params, **form.params}
        self.equations.append(
            eqn.replace(invars=invars, outvars=outvars, params=params)
        )

    def _moved(self, v: Var, source: Var, is_last: bool, cause: JaxprEqn) -> Var:
        shape = shape_of(v)
        new_shape = last(shape) if is_last else shape
        if moves_nothing(shape):
            return self._reshaped(source, new_shape, cause)
        order = to_last(len(shape)) if is_last else from_last(len(shape))
        return self._add(
            lax.transpose_p, {"permutation": order}, source, new_shape, cause
        )

    def _reshaped(self, source: Any, shape: Sequence[Any], cause: JaxprEqn) -> Var:
        params = {"new_sizes": tuple(shape), "dimensions": None, "sharding": None}
        return self._add(lax.reshape_p, params, source, shape, cause)

    def _add(
        self,
        primitive: Any,
        params: dict[str, Any],
        source: Any,
        shape: Sequence[Any],
        cause: JaxprEqn,
    ) -> Var:
        new = _like(source, shape)
        self.equations.append(
            cause.replace(
                primitive=primitive,
                params=params,
                invars=[source],
                outvars=[new],
                effects=frozenset(),
            )
        )
        return new


def _like(v: Any, shape: Sequence[Any]) -> Var:
    aval = v.aval
    return Var(ShapedArray(tuple(shape), aval.dtype, weak_type=aval.weak_type))
