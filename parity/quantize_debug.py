"""Which layer a quantization hurts, and the mixed recipe that mends it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert import convert
from tpu_export.converters.litert.fold import fold_constants
from tpu_export.converters.litert.mixed import Mixed
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.stages import lower
from tpu_export.parity.eager import Array, Sample, run_eager
from tpu_export.parity.judging import judge, real_samples, stepped
from tpu_export.parity.layers import Layer, table
from tpu_export.parity.references import Reference
from tpu_export.parity.regions import Found, Search
from tpu_export.parity.report import format_table
from tpu_export.parity.rungs import flat_inputs
from tpu_export.parity.samples import Samples, Second
from tpu_export.parity.verdict import Gates, Verdict
from tpu_export.parity.verdict_text import verdict_text
from tpu_export.runtime.signature import RNG

_RUN_ON = 4  # samples that layers and regions are measured on; calibration takes all


@dataclass(frozen=True)
class QuantizeDebug:
    """What was found: layers, the regions in float, and the verdict on the last file.

    Attributes:
        recipe: of all but the regions; data: where the inputs came from.
        found: None without a wanted number of decibels.
    """

    recipe: str
    data: str
    layers: Sequence[Layer]
    found: Found | None
    verdict: Verdict

    def text(self) -> str:
        """Return all of it for people."""
        parts = [
            f"{self.recipe}, layers by what they lose on their own ({self.data}):",
            format_table(table(self.layers)),
        ]
        if self.found:
            before, after = self.found.before, self.found.after
            parts += [
                f"\n{before.snr:.1f} dB of the float file, {after.snr:.1f} dB with these "
                f"regions in float ({self.found.tried} files tried):",
                format_table(self.found.table()),
            ]
        return "\n".join([*parts, "", verdict_text(self.verdict)])

    def to_json(self) -> dict[str, object]:
        """Return all of it as JSON-able values."""
        return {
            "recipe": self.recipe,
            "data": self.data,
            "layers": [layer.to_json() for layer in self.layers],
            "found": self.found.to_json() if self.found else None,
            "verdict": self.verdict.to_json(),
        }

    def recipe_toml(self) -> str:
        """Return the mixed recipe: rules in order, of which the last that fits counts."""
        regions = self.found.after.regions if self.found else ()
        rules = [("*", self.recipe)]
        modules = {layer.module for layer in self.layers}
        for region in regions:
            rules += [(region, "float")] if region in modules else []
            below = any(module.startswith(f"{region}.") for module in modules)
            rules += [(f"{region}.*", "float")] if below else []
        return "\n".join(
            f'[[rule]]\nmodule = "{module}"\nrecipe = "{recipe}"\n'
            for module, recipe in rules
        )


def quantize_debug(
    captured: Captured,
    recipe: str,
    *,
    data: Sequence[Mapping[str, Array]] = (),
    target: float | None = None,
    gates: Gates | None = None,
    second: Second | None = None,
    seed: int = 1,
) -> QuantizeDebug:
    """Quantize a signature, and say which layers lose what.

    Args:
        recipe: a key of `converters.litert.mixed.RECIPES`.
        data: inputs by name, to calibrate and to measure on; by default the example and a
            seeded set.
        target: decibels against the float file that every output must have; regions
            are left in float until then.
        gates: limits for the last file.
        second: gives the seeded set.

    Raises:
        SnrUnreachedError: no regions give the decibels asked for.
        QuantizationNoiseError, QuantizationSlowError: the last file is outside the gates.
    """
    calls = real_samples(captured, data) if data else Samples(seed, second).of(captured)
    program = lower(captured, target="litert").program
    signature = program.signature
    edge = convert({captured.name: program}, dims=captured.example_dims())
    plain = edge.path.with_name("folded.tflite")
    if not fold_constants(edge.path, captured.name, plain):
        plain = edge.path
    slots = [slot.name for slot in signature.state]
    state = {name: np.array(as_numpy(program.weights[name])) for name in slots}
    inputs = [flat_inputs(signature, call) for call in calls]
    arrays = stepped(plain, inputs, signature, state)
    with tempfile.TemporaryDirectory(prefix="tpu-export-quantize-") as folder:
        make = Mixed(plain, recipe, captured.name, arrays, Path(folder))
        search = Search(plain, make, arrays[:_RUN_ON], captured.name)
        found = None if target is None else search.run(target)
        first = search.trial(())
        last = found.after if found else first
        known = _reference(captured, signature, program.weights, calls)
        verdict = judge([known], state, plain, last.file)
        (gates or Gates()).check(verdict)
        return QuantizeDebug(
            recipe=recipe,
            data=f"{len(data)} real inputs"
            if data
            else "the example and seeded inputs",
            layers=found.layers if found else search.layers(first),
            found=found,
            verdict=verdict,
        )


def _reference(
    captured: Captured, signature: Any, weights: Mapping[str, Any], calls: list[Sample]
) -> Reference:
    state = {s.name: weights[s.name] for s in signature.state if s.name != RNG}
    return Reference(signature, calls, run_eager(captured, state, calls))
