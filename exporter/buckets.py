"""Buckets: the sizes of dynamic dimensions that executables are compiled for."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from tpu_export.exporter.capture import Captured
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.expressions import constraint_names, holds
from tpu_export.runtime.signature import Dim, Signature, sizes_text

Buckets: TypeAlias = Mapping[str, Sequence[int]]
Sizes: TypeAlias = Mapping[str, int]
MAX_COMBINATIONS = 256
_LARGEST = 2**31 - 1  # StableHLO computes sizes in int32


class BucketError(TpuExportError):
    """Sizes to compile for that no signature can have."""

    code = "TPX-0307"


def check_buckets(signatures: Mapping[str, Captured], buckets: Buckets) -> None:
    """Refuse buckets that do not fit the signatures.

    Raises:
        BucketError: no dimension of that name, a size that is no integer, outside of the
            range, or there twice; the model is static; or no combination is possible.
    """
    dims = [dim for c in signatures.values() for dim in c.signature.dims]
    if buckets and not dims:
        raise BucketError(
            f"buckets for {', '.join(buckets)}, but every size of the model is fixed",
            hint="name dynamic dimensions with dynamic_shapes (get_dynamic_shapes() of a "
            "model file), or leave the buckets out",
        )
    for name, sizes in buckets.items():
        _check_sizes(name, sizes)
        owners = [dim for dim in dims if dim.name == name]
        if not owners:
            raise _unknown(name, sorted({dim.name for dim in dims}))
        for dim in owners:
            _check_range(dim, sizes)
    for captured in signatures.values():
        compiled_sizes(captured, buckets)


def compiled_sizes(captured: Captured, buckets: Buckets) -> list[Sizes]:
    """Return the sizes that executables of a signature are compiled for.

    They are the combinations of its buckets, in the order they are given. A dimension
    without buckets has the example's size.

    Raises:
        BucketError: there are too many, or each breaks a constraint of the signature.
    """
    found = _combinations(captured, buckets)
    broken = [unmet(captured.signature, sizes) for sizes in found]
    if all(broken):
        raise BucketError(
            f"no bucket of {captured.name!r} is possible: the model was captured for "
            f"{broken[0]}",
            hint="give sizes that satisfy it",
        )
    return [sizes for sizes, what in zip(found, broken, strict=True) if what is None]


def left_out(captured: Captured, buckets: Buckets) -> list[str]:
    """Return a note for each combination that breaks a constraint of the signature."""
    return [
        f"{captured.name}: no executable for {sizes_text(sizes)}: the model was captured "
        f"for {what}"
        for sizes in _combinations(captured, buckets)
        if (what := unmet(captured.signature, sizes))
    ]


def _combinations(captured: Captured, buckets: Buckets) -> list[Sizes]:
    signature, example = captured.signature, captured.example_dims()
    choices = {
        dim.name: buckets.get(dim.name) or [example[dim.name]] for dim in signature.dims
    }
    count = math.prod(map(len, choices.values()))
    if count > MAX_COMBINATIONS:
        raise BucketError(
            f"{count} combinations of buckets for {signature.name!r}, more than "
            f"{MAX_COMBINATIONS}",
            hint="each is compiled for every topology: give fewer sizes",
        )
    combined = itertools.product(*choices.values())
    return [dict(zip(choices, sizes, strict=True)) for sizes in combined]


def unmet(signature: Signature, sizes: Sizes) -> str | None:
    """Return a constraint of the signature that the sizes alone break."""
    for constraint in signature.constraints:
        if constraint_names(constraint) <= set(sizes) and not holds(constraint, sizes):
            return constraint
    return None


def _check_sizes(name: str, sizes: Sequence[int]) -> None:
    if isinstance(sizes, str | bytes) or not isinstance(sizes, Sequence) or not sizes:
        raise BucketError(
            f"the buckets of {name} are {sizes!r}",
            hint=f"give a list of sizes: buckets={{{name!r}: [1, 8, 32]}}",
        )
    for size in sizes:
        if type(size) is not int:
            raise BucketError(
                f"{size!r} is no size of {name}", hint="give whole numbers"
            )
    twice = sorted({size for size in sizes if list(sizes).count(size) > 1})
    if twice:
        raise BucketError(
            f"{name} has the bucket {twice[0]} twice", hint="give each size once"
        )


def _check_range(dim: Dim, sizes: Sequence[int]) -> None:
    top = _LARGEST if dim.maximum is None else min(dim.maximum, _LARGEST)
    for size in sizes:
        if not dim.minimum <= size <= top:
            raise BucketError(
                f"bucket {dim.name}={size} is outside {dim.minimum} … {top}",
                hint=f"the model holds for {dim.name} in that range: choose a size in it, "
                "or capture a wider one",
            )


def _unknown(name: str, known: Sequence[str]) -> BucketError:
    near = get_close_matches(name, known, n=1)
    question = f"did you mean {near[0]}? " if near else ""
    return BucketError(
        f"there is no dynamic dimension {name!r}",
        hint=f"{question}dimensions are {', '.join(known)}",
    )
