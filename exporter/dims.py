"""Dynamic dimensions in the user's words: torch's symbols under the names of Dims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import sympy
import torch
from sympy.printing.str import StrPrinter
from torch.export import Dim as TorchDim
from torch.export import ExportedProgram
from torch.utils._sympy.numbers import int_oo

from tpu_export.exporter.names import identifier, unique
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.runtime.signature import Dim, DimSize, Shape

# Torch's own lower bound of a symbol that is no axis by itself, such as b where x is 2*b.
_UNPROVEN = 2


@dataclass(frozen=True)
class DimNames:
    """The name of each torch symbol, and sizes written with these names.

    Attributes:
        names: of the dimension, by symbol.
        offsets: dimension = symbol + offset, where torch took n - 1 for its symbol.
        roots: the Dim that the user named, by symbol.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    roots: Mapping[str, TorchDim] = field(default_factory=dict)

    def size(self, size: int | torch.SymInt) -> DimSize:
        """Return an int, or an expression in dimension names such as "2*seq + 1"."""
        if isinstance(size, int):
            return size
        return self.expression(size.node.expr)

    def expression(self, expression: sympy.Expr) -> DimSize:
        """Return an expression of torch's symbols in dimension names."""
        if expression.is_Integer:
            return int(expression)
        moved = {
            symbol: symbol - self.offsets[str(symbol)]
            for symbol in expression.free_symbols
            if str(symbol) in self.offsets
        }
        return str(_Printer(self.names).doprint(expression.subs(moved)))

    def shape(self, shape: Sequence[int | torch.SymInt]) -> Shape:
        """Return a torch shape in dimension names."""
        return tuple(self.size(size) for size in shape)


class _Printer(StrPrinter):  # type: ignore[misc]  # sympy ships no types
    """Python syntax with + - * // % min max only, so that a loader can evaluate it."""

    printmethod = "_dimension"  # torch's classes print themselves as "_sympystr"

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__()
        self.names = names

    def _print_Symbol(self, symbol: sympy.Symbol) -> str:  # noqa: N802  # sympy's protocol
        return self.names.get(str(symbol), str(symbol))

    def _print_FloorDiv(self, division: sympy.Expr) -> str:  # noqa: N802
        return self._binary("//", *division.args)

    _print_CleanDiv = _print_FloorDiv  # noqa: N815

    def _print_Mod(self, remainder: sympy.Expr) -> str:  # noqa: N802
        return self._binary("%", *remainder.args)

    _print_PythonMod = _print_Mod  # noqa: N815

    def _print_Pow(self, power: sympy.Expr, rational: bool = False) -> str:  # noqa: N802
        base, exponent = power.args
        if exponent.is_Integer and int(exponent) > 0:
            return f"({'*'.join([self._operand(base)] * int(exponent))})"
        return str(super()._print_Pow(power, rational))

    def _print_Max(self, largest: sympy.Expr) -> str:  # noqa: N802
        return self._nested("max", largest.args)

    def _print_Min(self, smallest: sympy.Expr) -> str:  # noqa: N802
        return self._nested("min", smallest.args)

    def _nested(self, function: str, sides: Iterable[sympy.Expr]) -> str:
        """A loader's functions take two arguments each."""
        first, *rest = sorted(map(self._print, sides))
        return reduce(lambda a, b: f"{function}({a}, {b})", rest, str(first))

    def _binary(self, operator: str, left: sympy.Expr, right: sympy.Expr) -> str:
        return f"({self._operand(left)} {operator} {self._operand(right)})"

    def _operand(self, side: sympy.Expr) -> str:
        printed = str(self._print(side))
        return printed if side.is_Atom else f"({printed})"


def name_dims(
    inputs: Sequence[tuple[str, torch.Tensor]], wanted: Sequence[object]
) -> DimNames:
    """Name every torch symbol in the shapes of the inputs.

    Args:
        inputs: name and fake value of each input tensor.
        wanted: what dynamic_shapes says of each input: a Dim by axis, or None.
    """
    roots: dict[str, TorchDim] = {}
    offsets: dict[str, int] = {}
    defaults: dict[str, str] = {}
    for (name, value), asked in zip(inputs, wanted, strict=True):
        for axis, expression in symbolic_axes(value):
            symbols = sorted(map(str, expression.free_symbols))
            dim = axis_dims(asked).get(axis)
            offset = _offset(expression, dim) if isinstance(dim, TorchDim) else None
            known = symbols[0] in roots and not offsets.get(symbols[0])
            if isinstance(dim, TorchDim) and offset is not None and not known:
                roots[symbols[0]] = _root(dim)
                offsets[symbols[0]] = offset
            for symbol in symbols:
                defaults.setdefault(symbol, identifier(f"{name}_{axis}"))
    given = {symbol: root.__name__ for symbol, root in roots.items()}
    merged = {symbol: given.get(symbol, name) for symbol, name in defaults.items()}
    first = sorted(merged, key=lambda symbol: symbol not in given)
    names = zip(first, unique(merged[symbol] for symbol in first), strict=True)
    return DimNames(dict(names), {s: n for s, n in offsets.items() if n}, roots)


def _root(dim: TorchDim) -> TorchDim:
    """Return b of 2*b, and b of b."""
    root: TorchDim = getattr(dim, "root", dim)
    return root


def _offset(expression: sympy.Expr, dim: TorchDim) -> int | None:
    """Return n where the root of `dim` is torch's symbol + n; None where it is not.

    Then torch found a relation that the user did not write.
    """
    symbols = [*expression.free_symbols]
    if len(symbols) != 1:
        return None
    derived = getattr(dim, "fn", lambda root: root)
    slope = derived(1) - derived(0)
    offset = sympy.expand(expression - derived(symbols[0])) / slope
    return int(offset) if offset.is_Integer else None


def symbolic_axes(value: torch.Tensor) -> Iterator[tuple[int, sympy.Expr]]:
    """Yield the dynamic axes of a fake tensor with torch's expression for each."""
    for axis, size in enumerate(value.shape):
        if isinstance(size, torch.SymInt) and not size.node.expr.is_Integer:
            yield axis, size.node.expr


def axis_dims(asked: object) -> dict[int, object]:
    """Return what dynamic_shapes says of one tensor, by axis."""
    if isinstance(asked, Mapping):
        return dict(asked)
    return dict(enumerate(asked)) if isinstance(asked, Sequence) else {}


def bounds(program: ExportedProgram, names: DimNames) -> tuple[Dim, ...]:
    """Return the named dimensions with torch's proven range of each."""
    ranges = {str(symbol): r for symbol, r in program.range_constraints.items()}
    dims = []
    for symbol, name in names.names.items():
        low, high, offset = 1, None, names.offsets.get(symbol, 0)
        if symbol in ranges:
            low = int(ranges[symbol].lower) + offset
            upper = ranges[symbol].upper
            high = int(upper) + offset if isinstance(upper, sympy.Integer) else None
        if symbol in names.roots and low == _UNPROVEN:
            low = min(low, names.roots[symbol].min)
        dims.append(Dim(name, max(low, 1), high))
    return tuple(dims)


def ones(asked: Iterable[object]) -> set[str]:
    """Return the names of the Dims that the user said begin at 1."""
    dims = [
        _root(d)
        for part in asked
        for d in axis_dims(part).values()
        if isinstance(d, TorchDim)
    ]
    return {dim.__name__ for dim in dims if dim.min == 1}


def check_ranges(asked: Iterable[object], dims: Sequence[Dim]) -> None:
    """Refuse a range of torch's that leaves out sizes which the user's Dims promise.

    Raises:
        DimRangeError: names the dimension, what was asked and what holds.
    """
    proven = {dim.name: dim for dim in dims}
    for part in asked:
        for dim in axis_dims(part).values():
            dim = _root(dim) if isinstance(dim, TorchDim) else dim
            if not isinstance(dim, TorchDim) or dim.__name__ not in proven:
                continue
            found = proven[dim.__name__]
            top = int_oo if found.maximum is None else found.maximum
            if found.minimum > max(dim.min, 1) or top < dim.max:
                raise DimRangeError(
                    f"torch narrows {dim.__name__} from {dim.min} … {dim.max} "
                    f"to {found.minimum} … {top}",
                    hint=f"ask for the range that holds: Dim({dim.__name__!r}, "
                    f"min={found.minimum}, max={found.maximum})",
                )
