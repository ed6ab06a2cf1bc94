"""The sizes of dynamic dimensions that a .tflite is made for: a signature for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tpu_export.converters.litert.sizes import sized_name
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.buckets import Buckets, Sizes, compiled_sizes, left_out
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.second_inputs import Example, resized, second_inputs
from tpu_export.parity.job import Job
from tpu_export.parity.litert_options import LiteRtOptions
from tpu_export.parity.litert_symbolic import check_symbolic, tried_sizes
from tpu_export.parity.samples import Second
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.signature import Dim, sizes_text

MAX_SIGNATURES = 8  # by default; --bucket may ask for more
_TIMES_EXAMPLE = 16  # the proof runs every size


class UnboundedSizeError(TpuExportError):
    """A dynamic dimension without a maximum, and no sizes to make the .tflite for."""

    code = "TPX-0640"

    def __init__(self, signature: str, dims: Sequence[str]) -> None:
        """Name the dimensions."""
        buckets = " ".join(f"--bucket {dim}=1,8" for dim in dims)
        super().__init__(
            f"{', '.join(dims)} of {signature!r} has no maximum, so no sizes can be chosen "
            "for the .tflite",
            hint=f"say which: {buckets} (or --dynamic-dims example for the example's alone)",
        )


class SignatureNameError(TpuExportError):
    """Two signatures of a .tflite would have one name."""

    code = "TPX-0641"


@dataclass(frozen=True)
class SizedSignatures:
    """The signatures of a .tflite.

    Attributes:
        captures: by name in the file; one graph at several sizes has several examples.
        second: draws their second inputs.
        notes: what sizes were chosen, and what was left out.
    """

    captures: Mapping[str, Captured]
    second: Second | None
    notes: tuple[str, ...]


class SharedStateError(TpuExportError):
    """State that two signatures would hold as integers of different scales."""

    code = "TPX-0642"


def check_shared_state(
    options: LiteRtOptions, programs: Mapping[str, LoweredProgram]
) -> None:
    """Refuse integers at the borders where signatures hand state to one another.

    Raises:
        SharedStateError: each signature would have a scale of its own for it.
    """
    slots = Counter(slot.name for p in programs.values() for slot in p.signature.state)
    shared = sorted(name for name, count in slots.items() if count > 1)
    if options.io_dtype != "float32" and shared:
        raise SharedStateError(
            f"--io-dtype {options.io_dtype} would make the state {', '.join(shared)} "
            "integers of another scale in each signature, and a call of one could not go "
            "on from a call of another",
            hint="leave --io-dtype out, or export one signature with one size",
        )


def sized_job(job: Job) -> Job:
    """Return a job whose signatures are those of its .tflite.

    Raises:
        TpuExportError: as `sized` does.
    """
    if job.litert.dynamic_dims == "example":
        return job
    symbolic = job.litert.dynamic_dims == "symbolic"
    if symbolic:
        check_symbolic([*job.signatures.values()])
    choose = tried_sizes if symbolic else None
    found = sized(job.signatures, job.buckets, job.second_inputs, choose)
    return replace(
        job,
        signatures=found.captures,
        second_inputs=found.second,
        notes=(*job.notes, *found.notes),
    )


def sized(
    signatures: Mapping[str, Captured],
    buckets: Buckets,
    second: Second | None,
    choose: Callable[[Captured, Buckets], list[Sizes]] | None = None,
) -> SizedSignatures:
    """Return a signature for each set of sizes of each signature of the model.

    Args:
        signatures: as captured.
        buckets: sizes by dimension; where a signature has none of them, they are chosen.
        second: draws second inputs of the signatures as captured.
        choose: the sizes of a signature; by default all combinations of its buckets.

    Raises:
        BucketError: the buckets fit no signature.
        UnboundedSizeError: sizes can be chosen for dimensions with a maximum only.
        SignatureNameError: a name of the model is that of a signature at a size.
    """
    found: dict[str, Captured] = {}
    models: dict[str, str] = {}
    notes: list[str] = []
    for captured in signatures.values():
        own = [captured]
        if captured.signature.dims and choose:
            own = [at_size(captured, s) for s in choose(captured, buckets)]
            notes.append(_told(captured, own, "any size, made and tried at"))
        elif captured.signature.dims:
            chosen = {**_defaults(captured, buckets), **buckets}
            own = [at_size(captured, s) for s in compiled_sizes(captured, chosen)]
            notes.append(_told(captured, own, "a signature for each of"))
            notes += [
                note.replace("no executable", "no signature")
                for note in left_out(captured, chosen)
            ]
        for one in own:
            if one.name in found:
                raise SignatureNameError(
                    f"two signatures of the .tflite would be {one.name!r}",
                    hint="rename the signature, or the dimension (Dim)",
                )
            found[one.name], models[one.name] = one, captured.name
    return SizedSignatures(found, _drawing(models, second), tuple(notes))


def at_size(captured: Captured, sizes: Sizes) -> Captured:
    """Return a capture with an example of these sizes, under the name it has in the file."""
    name = sized_name(captured.name, sizes)
    return replace(
        captured,
        name=name,
        signature=replace(captured.signature, name=name),
        example=resized(captured, captured.example, sizes),
    )


def _drawing(models: Mapping[str, str], second: Second | None) -> Second:
    def draw(captured: Captured, seed: int) -> Example:
        if second is None:
            return second_inputs(captured, seed)
        model = replace(captured, name=models[captured.name])
        return resized(captured, second(model, seed), captured.example_dims())

    return draw


def _told(captured: Captured, own: Sequence[Captured], what: str) -> str:
    sizes = ", ".join(sizes_text(c.example_dims()) for c in own)
    return f"{captured.name}: {what} {sizes}"


def _defaults(captured: Captured, buckets: Buckets) -> dict[str, list[int]]:
    """Return sizes for the dimensions without buckets; the example's where one has some."""
    dims = [dim for dim in captured.signature.dims if dim.name not in buckets]
    if len(dims) < len(captured.signature.dims):
        return {}  # who chose one chose: the others have the example's size
    open_ended = [dim.name for dim in dims if dim.maximum is None]
    if open_ended:
        raise UnboundedSizeError(captured.name, open_ended)
    count = next(k for k in (4, 2, 1) if k ** len(dims) <= MAX_SIGNATURES)
    example = captured.example_dims()
    return {dim.name: default_sizes(dim, example[dim.name], count) for dim in dims}


def default_sizes(dim: Dim, example: int, count: int) -> list[int]:
    """Return sizes of a bounded dimension: the example's, the ends, powers of two between.

    >>> default_sizes(Dim("batch", 1, 64), 2, 4)
    [1, 2, 8, 32]
    """
    assert dim.maximum is not None
    low, high = max(dim.minimum, 1), min(dim.maximum, _TIMES_EXAMPLE * max(example, 1))
    powers = [1 << n for n in range(low.bit_length(), high.bit_length())]
    known = list(dict.fromkeys([max(example, low), high, low]))[:count]
    rest = [size for size in powers if low < size < high and size not in known]
    while rest and len(known) < count:
        farthest = max(rest, key=lambda size: _distance(size, known))
        known.append(farthest)
        rest.remove(farthest)
    return sorted(known)


def _distance(size: int, known: Sequence[int]) -> float:
    return min(abs(math.log2(size / max(other, 1))) for other in known)
