"""What torch eager says: run once per signature, compared with any number of rungs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.capture import Captured
from tpu_export.parity.eager import Array, Run, Sample, run_eager
from tpu_export.parity.halves import half_limits, limits_arrays
from tpu_export.parity.ladder import Rung, compare_rung
from tpu_export.parity.report import ParityRow
from tpu_export.parity.rounding import rounding_limits
from tpu_export.parity.samples import Samples
from tpu_export.runtime.signature import RNG, Signature


@dataclass(frozen=True)
class Reference:
    """One signature: its samples, and eager's results on them.

    Attributes:
        training: whether the model, or a part of it, is in training mode.
        limits: of what is computed in half types, or quantized, by output.
    """

    signature: Signature
    samples: Sequence[Sample]
    run: Run
    training: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)


def references(
    captured: Mapping[str, Captured],
    programs: Mapping[str, LoweredProgram],
    samples: Samples,
) -> list[Reference]:
    """Run eager on every signature; the models are left as they were."""
    return [
        reference(captured[name], program, samples.of(captured[name]))
        for name, program in programs.items()
    ]


def reference(
    captured: Captured, program: LoweredProgram, samples: Sequence[Sample]
) -> Reference:
    """Run eager on the samples of a signature; the model is left as it was."""
    slots = [slot.name for slot in program.signature.state if slot.name != RNG]
    state = {name: program.weights[name] for name in slots}
    run = run_eager(captured, state, samples)
    signature = program.signature
    limits = half_limits(captured, signature)
    rounded = rounding_limits(captured, signature, state, samples, run)
    for name, limit in rounded.items():
        limits[name] = max(limit, limits.get(name, 0.0))
    training = _in_training(captured.model)
    return Reference(signature, samples, run, training, limits)


def _in_training(model: object) -> bool:
    """Whether a module, or the module of a bound method, is in training mode."""
    module = getattr(model, "__self__", model)
    return isinstance(module, torch.nn.Module) and any(
        part.training for part in module.modules()
    )


def compare(
    known: Sequence[Reference], rung: Rung, tolerance: float | None = None
) -> list[ParityRow]:
    """Return the rows of every signature on one rung."""
    return [
        row
        for r in known
        for row in compare_rung(
            r.signature,
            r.run,
            rung,
            r.samples,
            tolerance,
            training=r.training,
            limits=r.limits,
        )
    ]


def golden(known: Sequence[Reference], limit: int) -> dict[str, dict[str, Array]]:
    """Return the example's inputs and eager's outputs of each signature.

    A signature whose arrays are together larger than `limit` bytes is left out.
    """
    arrays = {r.signature.name: _golden(r) for r in known}
    return {
        name: found
        for name, found in arrays.items()
        if sum(a.nbytes for a in found.values()) <= limit
    }


def _golden(reference: Reference) -> dict[str, Array]:
    from tpu_export.parity.rungs import flat_inputs

    signature, call = reference.signature, reference.run.calls[0]
    inputs = flat_inputs(signature, reference.samples[0])
    outputs = zip(signature.outputs, call.outputs, strict=True)
    return {
        **{f"inputs/{name}": array for name, array in inputs.items()},
        **{f"outputs/{spec.name}": array for spec, array in outputs},
        **limits_arrays(reference.limits, signature),
    }
