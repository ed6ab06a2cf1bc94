"""Sizes of the dynamic dimensions of a call, solved from the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpu_export.runtime.expressions import evaluate, names_in
from tpu_export.runtime.signature import Dim, DimSize, TensorSpec

_SEARCH = 65_536


@dataclass(frozen=True)
class _Axis:
    """One axis of an input: what the signature says of it, and the caller."""

    name: str
    axis: int
    size: DimSize
    given: int

    def __str__(self) -> str:
        return f"{self.name} has size {self.given} in axis {self.axis}"


def solve_dims(
    specs: Sequence[TensorSpec],
    shapes: Mapping[str, Sequence[int]],
    dims: Sequence[Dim],
) -> tuple[dict[str, int], list[str]]:
    """Return the size of each dimension, and what is wrong with the shapes.

    Args:
        specs: of the inputs.
        shapes: of the arrays given, by input name; ranks fit already.
        dims: the signature's dimensions.
    """
    axes = [
        _Axis(spec.name, axis, size, shapes[spec.name][axis])
        for spec in specs
        if spec.name in shapes
        for axis, size in enumerate(spec.shape)
    ]
    known, origins = _solved(axes, dims)
    problems = [p for axis in axes if (p := _mismatch(axis, known, origins))]
    if not problems and len(axes) == sum(len(spec.shape) for spec in specs):
        problems += _unsolved(axes, known, dims)
    return known, problems + _out_of_range(known, origins, dims)


def _solved(
    axes: Sequence[_Axis], dims: Sequence[Dim]
) -> tuple[dict[str, int], dict[str, _Axis]]:
    """Return the sizes that follow from the axes, and the axis that gave each."""
    known: dict[str, int] = {}
    origins: dict[str, _Axis] = {}
    names = {dim.name for dim in dims}
    for axis in sorted(axes, key=lambda axis: axis.size not in names):
        for dim in dims if isinstance(axis.size, str) else ():
            if dim.name not in known:
                found = _solve(str(axis.size), axis.given, dim, known)
                if found is not None:
                    known[dim.name], origins[dim.name] = found, axis
    return known, origins


def _mismatch(
    axis: _Axis, known: Mapping[str, int], origins: Mapping[str, _Axis]
) -> str | None:
    expected = _value(axis.size, known)
    if expected is None or expected == axis.given:
        return None
    if isinstance(axis.size, int):
        return f"{axis}, expected {axis.size}"
    places = [
        f"{name} = {known[name]} as in axis {origins[name].axis} of {origins[name].name}"
        for name in sorted(names_in(axis.size))
    ]
    if axis.size in known:
        return f"{axis}, expected {places[0]}"
    return f"{axis}, expected {axis.size} = {expected} with {', '.join(places)}"


def _unsolved(
    axes: Sequence[_Axis], known: Mapping[str, int], dims: Sequence[Dim]
) -> list[str]:
    return [
        f"{axis}, expected {axis.size} with a {dim.name} of {_range(dim)}"
        for dim in dims
        if dim.name not in known
        for axis in axes
        if isinstance(axis.size, str) and dim.name in names_in(axis.size)
    ]


def _out_of_range(
    known: Mapping[str, int], origins: Mapping[str, _Axis], dims: Sequence[Dim]
) -> list[str]:
    return [
        f"dimension {dim.name} = {known[dim.name]} is outside {_range(dim)}: "
        f"{origins[dim.name]}"
        for dim in dims
        if dim.name in known
        and not (
            dim.minimum <= known[dim.name]
            and (dim.maximum is None or known[dim.name] <= dim.maximum)
        )
    ]


def _range(dim: Dim) -> str:
    if dim.maximum is None:
        return f"at least {dim.minimum}"
    return f"{dim.minimum} … {dim.maximum}"


def _value(size: DimSize, known: Mapping[str, int]) -> int | None:
    if isinstance(size, int):
        return size
    try:
        return int(evaluate(size, known))
    except ValueError:
        return None  # a dimension of the expression could not be solved


def _solve(size: str, given: int, dim: Dim, known: Mapping[str, int]) -> int | None:
    """Return the value of `dim` that gives the size, the others being known."""

    def at(value: int) -> int | None:
        return _value(size, {**known, dim.name: value})

    if size == dim.name:
        return given
    zero, one = at(0), at(1)
    if zero is None or one is None or _value(size, known) is not None:
        return None
    if one != zero:
        guess = (given - zero) // (one - zero)
        if at(guess) == given:
            return guess
    top = min(dim.maximum or _SEARCH, _SEARCH)
    return next((v for v in range(dim.minimum, top + 1) if at(v) == given), None)
