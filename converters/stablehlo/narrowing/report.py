"""Which 64-bit integers of a program are computed in 32 bits, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from jax.extend.core import JaxprEqn, Var

from tpu_export.converters.stablehlo.narrowing.groups import MOVES, is_known
from tpu_export.converters.stablehlo.narrowing.interval import INT32, Interval
from tpu_export.converters.stablehlo.narrowing.ranges import RULES, is_wide, limits_of
from tpu_export.converters.stablehlo.narrowing.sizes import Sizes
from tpu_export.converters.stablehlo.shapes import spelled


@dataclass(frozen=True)
class IntegerTensor:
    """int64 tensors of one place that share their fate.

    Attributes:
        place: "module/op/file:line", or the argument: "input ids".
        operation: JAX's name of what makes it; "" for an argument.
        shape: with the names of dimensions.
        low: least value, as far as it is known.
        high: greatest value.
        narrowed: whether it is computed in 32 bits.
        reason: why not; "" where it is.
        count: how many there are.
    """

    place: str
    operation: str
    shape: tuple[int | str, ...]
    low: int
    high: int
    narrowed: bool
    reason: str
    count: int = 1


def merged(tensors: Iterable[IntegerTensor]) -> tuple[IntegerTensor, ...]:
    """Return equal ones once, with their number, in order."""
    return tuple(replace(t, count=n) for t, n in Counter(tensors).items())


def place_of(eqn: JaxprEqn) -> str:
    """Return the scope of the graph's node that an equation is from."""
    stack = eqn.source_info.name_stack.stack
    return str(stack[0].name) if stack else ""


@dataclass
class Rows:
    """The report so far.

    Attributes:
        sizes: bounds of symbolic sizes.
        found: the rows.
        why: the first cause of each variable that does not fit in 32 bits.
    """

    sizes: Sizes
    found: list[IntegerTensor] = field(default_factory=list)
    why: dict[Var, str] = field(default_factory=dict)
    _outer: str = ""

    @contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Name the place of what has no scope of its own within the block."""
        before, self._outer = self._outer, place or self._outer
        yield
        self._outer = before

    def arguments(
        self,
        names: Mapping[Var, str],
        ranges: Mapping[Var, Interval],
        narrow: Collection[Var],
    ) -> None:
        """Add arguments by their names."""
        for v, name in names.items():
            if is_wide(v):
                reason = "" if v in narrow else self.why.get(v) or "nothing to gain"
                self._add(v, name, "", ranges, reason)

    def equation(
        self, eqn: JaxprEqn, ranges: Mapping[Var, Interval], narrow: Collection[Var]
    ) -> None:
        """Add the results of an equation."""
        for v in eqn.outvars:
            if is_wide(v):
                if not ranges[v].within(INT32):
                    self.why[v] = self._cause(eqn)
                reason = "" if v in narrow else self._reason(eqn, v)
                place = place_of(eqn) or self._outer
                self._add(v, place, eqn.primitive.name, ranges, reason)

    def _add(
        self,
        v: Var,
        place: str,
        operation: str,
        ranges: Mapping[Var, Interval],
        reason: str,
    ) -> None:
        aval: Any = v.aval
        shape = tuple(map(spelled, aval.shape))
        values = ranges.get(v) or limits_of(v)
        assert values is not None, "a 64-bit integer has limits"
        if values.low == values.high and not shape:
            return  # a constant
        row = (place, operation, shape, values.low, values.high, not reason, reason)
        self.found.append(IntegerTensor(*row))

    def _reason(self, eqn: JaxprEqn, v: Var) -> str:
        """Return why a result stays in 64 bits."""
        if v in self.why:
            return self.why[v]
        if not is_known(eqn):
            return f"{eqn.primitive.name} has no form of 32 bits"
        beyond = self._inherited(eqn)
        if beyond:
            return beyond[0]
        return "only moved" if eqn.primitive.name in MOVES else "made in 64 bits"

    def _inherited(self, eqn: JaxprEqn) -> list[str]:
        operands = [v for v in eqn.invars if isinstance(v, Var)]
        return [self.why[v] for v in operands if v in self.why]

    def _cause(self, eqn: JaxprEqn) -> str:
        """Return why a result of an equation may not fit in 32 bits."""
        name = eqn.primitive.name
        inherited = self._inherited(eqn)
        if inherited:
            return inherited[0]
        shapes = " ".join(str(v.aval) for v in (*eqn.invars, *eqn.outvars))
        for dim in self.sizes.unbounded:
            if dim in shapes or dim in str(eqn.params.get("dim", "")):
                return f"dimension {dim} has no maximum"
        if name in ("while", "scan"):
            return "carried by a loop"
        if name not in RULES:
            return f"{name} can give any number"
        if name == "convert_element_type" and limits_of(eqn.invars[0]) is None:
            return "made of a float"
        return f"{name} may need more than 32 bits"
