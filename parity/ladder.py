"""The ladder: run the same inputs on the reference and on other rungs, and compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from tpu_export.parity.eager import Array, Run, Sample, same_bits
from tpu_export.parity.halves import allowed
from tpu_export.parity.metrics import difference
from tpu_export.parity.report import ParityRow
from tpu_export.runtime.signature import RNG, Signature


class Rung(Protocol):
    """A way to run the model. Rungs are compared on the values that they return."""

    @property
    def name(self) -> str:
        """How the rung is called in reports."""

    def run(self, signature: Signature, samples: Sequence[Sample]) -> Run:
        """Call the signature on the samples in order, from its initial state."""


def compare_rung(
    signature: Signature,
    reference: Run,
    rung: Rung,
    samples: Sequence[Sample],
    tolerance: float | None = None,
    *,
    training: bool = False,
    limits: Mapping[str, float] | None = None,
) -> list[ParityRow]:
    """Run one rung and return a row for each output, written input and state slot.

    Args:
        limits: of outputs that their dtype alone does not tell, as of a Reference.
    """
    run = rung.run(signature, samples)
    random = any(slot.name == RNG for slot in signature.state)
    rows: list[ParityRow] = []

    def add(output: str, origin: str, actual: Array, expected: Array) -> None:
        limit = tolerance
        if limit is None:
            limit = allowed(expected.dtype.name, (limits or {}).get(output, 0.0))
        rows.append(
            row(signature.name, output, rung.name, origin, actual, expected, limit)
        )

    for sample, got, want in zip(samples, run.calls, reference.calls, strict=True):
        for spec, a, e in zip(
            signature.outputs, got.outputs, want.outputs, strict=True
        ):
            add(spec.name, sample.origin, a, e)
        for spec, a, e in zip(signature.inputs, got.inputs, want.inputs, strict=True):
            if spec.name in signature.mutated_inputs or not same_bits(a, e):
                add(f"input.{spec.name}", sample.origin, a, e)
    for name, expected in reference.state.items():
        if name in run.state:
            add(f"state.{name}", "after all calls", run.state[name], expected)
    found = [_random(r, training) for r in rows] if random else rows
    lost = reference.state.keys() - run.state.keys()
    return [*found, *(_lost(signature.name, rung.name, name) for name in sorted(lost))]


def row(
    signature: str,
    output: str,
    rung: str,
    origin: str,
    actual: Array,
    expected: Array,
    tolerance: float | None,
) -> ParityRow:
    """Compare one output and put it in a row."""
    d = difference(actual, expected, tolerance)
    return ParityRow(
        signature=signature,
        output=output,
        rung=rung,
        reference="eager",
        inputs=origin,
        dtype=expected.dtype.name,
        max_abs=d.max_abs,
        max_rel=d.max_rel,
        cosine=d.cosine,
        threshold=d.threshold,
        passed=d.passed,
        note=d.note,
    )


def _lost(signature: str, rung: str, buffer: str) -> ParityRow:
    """A buffer that eager changes, and the program does not know as state."""
    return ParityRow(
        signature=signature,
        output=f"state.{buffer}",
        rung=rung,
        reference="eager",
        inputs="after all calls",
        dtype="",
        max_abs=inf,
        max_rel=inf,
        cosine=0.0,
        threshold=0.0,
        passed=False,
        note="eager changes this buffer, and the program keeps it as it was",
    )


def _random(found: ParityRow, training: bool) -> ParityRow:
    """Torch's random stream is its own: only shape and dtype can be compared."""
    if found.passed or "shape" in found.note or "dtype" in found.note:
        return found
    note = "the model draws random numbers"
    if training:  # dropout left on is a common cause
        note += "; it is in training mode (call .eval() in get_model() unless that is meant)"
    return replace(found, passed=None, note=note)
