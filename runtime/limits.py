"""What a model asks of the inputs of a call besides their dtypes and ranks: sizes and indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tpu_export.runtime.conformance import numbers
from tpu_export.runtime.dims import solve_dims
from tpu_export.runtime.expressions import constraint_names, holds
from tpu_export.runtime.signature import InputRange, Signature
from tpu_export.runtime.tensors import Array


def solved_sizes(
    signature: Signature, arrays: Mapping[str, Array]
) -> tuple[dict[str, int], list[str]]:
    """Return the size of each dimension, and what is wrong with the sizes of a call.

    Args:
        arrays: inputs by name, those that are given; their ranks fit already.
    """
    shapes = {name: array.shape for name, array in arrays.items()}
    dims, wrong = solve_dims(signature.inputs, shapes, signature.dims)
    return dims, wrong or _unmet(signature, arrays, dims)


def outside_indices(signature: Signature, arrays: Mapping[str, Array]) -> list[str]:
    """Return what is wrong with the values of the inputs that are used as indices."""
    ranges = [r for r in signature.ranges if r.name in arrays]
    return [text for r in ranges for text in _outside(r, arrays[r.name])]


def _unmet(
    signature: Signature, arrays: Mapping[str, Array], dims: Mapping[str, int]
) -> list[str]:
    """Return the constraints that the sizes and whole numbers of a call do not meet."""
    if not signature.constraints:
        return []
    known = {n: int(arrays[n]) for n in numbers(signature) if n in arrays} | dict(dims)
    problems = []
    for constraint in signature.constraints:
        names = sorted(constraint_names(constraint))
        if known.keys() >= set(names) and not holds(constraint, known):
            given = ", ".join(f"{name} = {known[name]}" for name in names)
            problems.append(f"the model was captured for {constraint}, given {given}")
    return problems


def _outside(wanted: InputRange, array: Array) -> Iterator[str]:
    """Yield what is wrong with the values of an input that is used as an index."""
    if not array.size:
        return
    low, high = int(array.min()), int(array.max())
    if low < wanted.low or high > wanted.high:
        value = high if high > wanted.high else low
        yield (
            f"{wanted.name} holds {value}; {wanted.because}: "
            f"{wanted.low} … {wanted.high}"
        )
