"""A .tflite for any size: the sizes that it is made and proven at, and its one signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tpu_export.converters.litert.sizes import Sizes, family
from tpu_export.converters.litert.symbolic import SymbolicSizeError
from tpu_export.exporter.buckets import Buckets, unmet
from tpu_export.exporter.capture import Captured
from tpu_export.parity.job import Job
from tpu_export.parity.litert_document import Known
from tpu_export.runtime.signature import Dim, Signature

_TIMES_EXAMPLE = 16  # where a dimension has no maximum


def tried_sizes(captured: Captured, buckets: Buckets) -> list[Sizes]:
    """Return the sizes that a .tflite for any size is made and proven at.

    Those that it is made at come first, with the example's at the front where they are none
    of 0 and 1. Each dimension varies alone, and all go to their ends together.

    Args:
        captured: a signature with dynamic dimensions.
        buckets: sizes by dimension; where there are none, they are chosen.

    Raises:
        SymbolicSizeError: a dimension has no two sizes from 2 on.
    """
    dims, example = captured.signature.dims, captured.example_dims()
    choices = {d.name: list(buckets.get(d.name) or _chosen(d, example)) for d in dims}
    large = {name: [s for s in sizes if s > 1] for name, sizes in choices.items()}
    fixed = [name for name, sizes in large.items() if len(sizes) < 2]
    if fixed:
        raise SymbolicSizeError(
            [
                f"{name} of {captured.name!r} has no two sizes from 2 on"
                for name in fixed
            ]
        )
    base = {n: example[n] if example[n] in s else s[0] for n, s in large.items()}
    alone = [{**base, n: size} for n, sizes in choices.items() for size in sizes]
    ends = [{n: end(s) for n, s in choices.items()} for end in (max, min)]
    found = [base, *alone, *ends, example]
    kept = [s for s in found if unmet(captured.signature, s) is None]
    distinct = {tuple(s.items()): s for s in kept}.values()
    return sorted(distinct, key=lambda sizes: min(sizes.values()) < 2)


def _chosen(dim: Dim, example: Mapping[str, int]) -> list[int]:
    """Return the example's size, the next one, an odd one far away, and the ends."""
    low, size = max(dim.minimum, 1), max(example[dim.name], 2)
    far = _TIMES_EXAMPLE * size + 1
    high = far if dim.maximum is None else min(dim.maximum, far)
    wanted = [size, size + 1, high - 1, high, low]
    return sorted({s for s in wanted if low <= s <= high})


def file_names(signatures: Mapping[str, Captured]) -> dict[str, str]:
    """Return the file's name of a signature at a size."""
    return {n: family(n, c.example_dims()) for n, c in signatures.items()}


def folded(job: Job, known: Known) -> tuple[Job, Known]:
    """Return job and knowledge of the signatures in the file: each once, at its first size."""
    first: dict[str, str] = {}
    for name, own in file_names(job.signatures).items():
        first.setdefault(own, name)
    signatures = {
        own: replace(c, name=own, signature=_named(c.signature, own))
        for own, name in first.items()
        for c in [job.signatures[name]]
    }
    programs = {
        own: replace(p, signature=_named(p.signature, own))
        for own, name in first.items()
        for p in [known.programs[name]]
    }
    references = [
        replace(reference, signature=_named(reference.signature, own))
        for own, name in first.items()
        for reference in known.references
        if reference.signature.name == name
    ]
    return replace(job, signatures=signatures), replace(
        known, programs=programs, references=references
    )


def _named(signature: Signature, name: str) -> Signature:
    return replace(signature, name=name)


def check_symbolic(signatures: Sequence[Captured]) -> None:
    """Refuse a model without a dynamic dimension.

    Raises:
        SymbolicSizeError: every size is fixed.
    """
    if not any(captured.signature.dims for captured in signatures):
        raise SymbolicSizeError(
            ["every size of the model is fixed: name dynamic_shapes"]
        )
