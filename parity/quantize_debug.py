"""Which layer a quantization hurts, and the mixed recipe that mends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpu_export.converters.litert import LiteRtModel, convert
from tpu_export.converters.litert.fold import fold_constants
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.litert.quantize import (
    Quantized,
    Recipe,
    quantize,
    read_recipe,
)
from tpu_export.converters.litert.quantize.recipes import FLOAT, Rule
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.stages import lower
from tpu_export.parity.eager import Array
from tpu_export.parity.judging import (
    initial_state,
    judge,
    real_samples,
    stepped,
)
from tpu_export.parity.layers import Layer, table
from tpu_export.parity.references import reference
from tpu_export.parity.regions import Found, Search
from tpu_export.parity.report import format_table
from tpu_export.parity.rungs import flat_inputs
from tpu_export.parity.samples import Samples, Second
from tpu_export.parity.verdict import Gates, Verdict
from tpu_export.parity.verdict_text import verdict_text

_RUN_ON = 4  # samples that layers and regions are measured on; calibration takes all


@dataclass(frozen=True)
class QuantizeDebug:
    """What was found: layers, the regions in float, and the verdict on the last file.

    Attributes:
        recipe: of the last file; data: where the inputs came from.
        clamped: what was changed before quantizing, in words.
        found: None without a wanted number of decibels.
    """

    recipe: Recipe
    data: str
    clamped: Sequence[str]
    layers: Sequence[Layer]
    found: Found | None
    verdict: Verdict

    def text(self) -> str:
        """Return all of it for people."""
        parts = [
            *self.clamped,
            f"{self.recipe.name}, layers by what they lose on their own ({self.data}):",
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
            "recipe": self.recipe.name,
            "data": self.data,
            "clamped": list(self.clamped),
            "layers": [layer.to_json() for layer in self.layers],
            "found": self.found.to_json() if self.found else None,
            "verdict": self.verdict.to_json(),
        }


@dataclass(frozen=True)
class _Regions:
    """Quantizes a signature by a recipe, with some regions in float."""

    plain: LiteRtModel
    recipe: Recipe
    data: Mapping[str, Sequence[Mapping[str, Array]]]
    made: dict[Path, Quantized] = field(default_factory=dict)

    def __call__(self, regions: Sequence[str]) -> Path:
        known = next((done.spoiled for done in self.made.values()), None)
        done = quantize(self.plain, self.mixed(regions), self.data, spoiled=known)
        self.made[done.model.path] = done
        return done.model.path

    def mixed(self, regions: Sequence[str]) -> Recipe:
        """Return the recipe and, after its rules, one for each part of the regions."""
        (name,) = self.data
        modules = {
            node.place.module for node in read_graph(self.plain.path, name).nodes
        }
        rules = [*self.recipe.rules]
        for region in regions:
            rules += [Rule(FLOAT, region)] if region in modules else []
            below = any(module.startswith(f"{region}.") for module in modules)
            rules += [Rule(FLOAT, f"{region}.*")] if below else []
        return Recipe(self.recipe.name, tuple(rules))


def quantize_debug(
    captured: Captured,
    recipe: str | Path,
    *,
    data: Sequence[Mapping[str, Array]] = (),
    target: float | None = None,
    gates: Gates | None = None,
    second: Second | None = None,
    seed: int = 1,
) -> QuantizeDebug:
    """Quantize a signature, and say which layers lose what.

    Args:
        recipe: as of `read_recipe`.
        data: inputs by name, to calibrate and to measure on; by default the example and a
            seeded set.
        target: decibels against the float file that every output must have; regions
            are left in float until then.
        gates: limits for the last file.
        second: gives the seeded set.

    Raises:
        SnrUnreachedError: no regions give the decibels asked for.
        QuantizationNoiseError, QuantizationSlowError: the last file is outside the gates.
        RecipeError, QuantizedNothingError, QuantizerFailedError: as of `quantize`.
    """
    rules = read_recipe(recipe)
    calls = real_samples(captured, data) if data else Samples(seed, second).of(captured)
    program = lower(captured, target="litert").program
    signature = program.signature
    edge = convert(
        {captured.name: program}, dims={captured.name: captured.example_dims()}
    )
    path = edge.path.with_name("folded.tflite")
    plain = edge
    if fold_constants(edge.path, captured.name, path):
        plain = replace(edge, path=path)
    state = initial_state([program])
    inputs = [flat_inputs(signature, call) for call in calls]
    arrays = stepped(plain.path, inputs, signature, state)
    make = _Regions(plain, rules, {captured.name: arrays})
    search = Search(plain.path, make, arrays[:_RUN_ON], captured.name)
    found = None if target is None else search.run(target)
    first = search.trial(())
    last = make.made[(found.after if found else first).file]
    known = reference(captured, program, calls)
    verdict = judge([known], state, plain.path, last.model.path)
    (gates or Gates()).check(verdict)
    return QuantizeDebug(
        recipe=last.recipe,
        data=f"{len(data)} real inputs" if data else "the example and seeded inputs",
        clamped=last.changed(),
        layers=found.layers if found else search.layers(first),
        found=found,
        verdict=verdict,
    )
