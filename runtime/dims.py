"""Sizes of the dynamic dimensions of a call, solved from the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpu_export.runtime.expressions import evaluate
from tpu_export.runtime.signature import Dim, DimSize, TensorSpec

_SEARCH = 65_536


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
    known: dict[str, int] = {}
    problems: list[str] = []
    pairs = [
        (spec.name, axis, size, shapes[spec.name][axis])
        for spec in specs
        if spec.name in shapes
        for axis, size in enumerate(spec.shape)
    ]
    by_name = {dim.name: dim for dim in dims}
    for _, _, size, given in sorted(pairs, key=lambda p: p[2] not in by_name):
        if isinstance(size, str):
            for dim in dims:
                if dim.name not in known:
                    found = _solve(size, given, dim, known)
                    if found is not None:
                        known[dim.name] = found
    for name, axis, size, given in pairs:
        expected = _value(size, known)
        if expected is not None and expected != given:
            said = f"{size} = {expected}" if isinstance(size, str) else f"{size}"
            problems.append(f"{name} has size {given} in axis {axis}, expected {said}")
    if not problems and len(pairs) == sum(len(spec.shape) for spec in specs):
        unsolved = [dim.name for dim in dims if dim.name not in known]
        problems += [f"no size of {name} gives these shapes" for name in unsolved]
    return known, problems + _out_of_range(known, dims)


def _out_of_range(known: Mapping[str, int], dims: Sequence[Dim]) -> list[str]:
    problems = []
    for dim in dims:
        size = known.get(dim.name)
        low, high = dim.minimum, dim.maximum
        if size is not None and (size < low or (high is not None and size > high)):
            bounds = f"{low} … {high}" if high is not None else f"at least {low}"
            problems.append(f"dimension {dim.name} = {size} is outside {bounds}")
    return problems


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
