"""A float .tflite to a quantized one: rules to ops, the worker, and what came out."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tpu_export.converters.litert.flatbuffer import op_histograms
from tpu_export.converters.litert.fold import fold_constants
from tpu_export.converters.litert.graph import read_graph
from tpu_export.converters.litert.model import LiteRtModel
from tpu_export.converters.litert.quantize.biases import hold_biases
from tpu_export.converters.litert.quantize.blocks import widen_blocks
from tpu_export.converters.litert.quantize.borders import as_uint8
from tpu_export.converters.litert.quantize.coverage import Coverage, coverage
from tpu_export.converters.litert.quantize.errors import (
    CalibrationError,
    QuantizedNothingError,
    RecipeError,
    WeightsLostError,
)
from tpu_export.converters.litert.quantize.findings import Finding, lines
from tpu_export.converters.litert.quantize.job import Border, Data, run_worker
from tpu_export.converters.litert.quantize.lint import (
    Lint,
    Spoils,
    activation_findings,
    spoils,
    weight_findings,
    with_findings,
)
from tpu_export.converters.litert.quantize.masks import without_far_masks
from tpu_export.converters.litert.quantize.mixed import keep_apart
from tpu_export.converters.litert.quantize.recipes import WEIGHT_BLOCKS, Recipe
from tpu_export.converters.litert.transposes import transposes


@dataclass(frozen=True)
class Quantized:
    """A quantized file and what became of the float one.

    Attributes:
        recipe: with the rules of the lint.
        coverage: of each signature, by name.
        clamped: values of masks and steps of weights that were changed, in words.
        findings: what the lint gave another number format.
        spoiled: what it found of activations, for other recipes of the same file and data.
    """

    model: LiteRtModel
    recipe: Recipe
    coverage: Mapping[str, Coverage]
    clamped: Sequence[str]
    findings: Sequence[Finding] = ()
    spoiled: Spoils | None = None

    def changed(self) -> list[str]:
        """Return what the lint did, in words."""
        return [*self.clamped, *lines(self.findings)]


def quantize(
    plain: LiteRtModel,
    recipe: Recipe,
    data: Data | None = None,
    *,
    border: Border = "float32",
    lint: Lint = "auto",
    spoiled: Spoils | None = None,
) -> Quantized:
    """Quantize a float .tflite.

    Args:
        plain: of `convert`.
        recipe: of `read_recipe`.
        data: calls of each signature, inputs and state by LiteRT's names; static recipes
            take the range of each activation from them.
        border: dtype of floating-point inputs and outputs; integers need a static recipe.
        lint: whether ops that the recipe would spoil get another number format ("auto"), and
            masks are clamped ("auto", "masks"); "off": the recipe and the numbers as given.
        spoiled: of another recipe; by default the file is run, and its activations looked at.

    Raises:
        RecipeError: a rule is about nothing in this model, or it is quantized already.
        CalibrationError: a static recipe without data.
        QuantizedNothingError: the whole file would stay in float.
        QuantizerFailedError: ai-edge-quantizer refused it, or died.
        WeightsLostError: a number format cannot hold weights, and the lint may not mend it.
    """
    if plain.report.integers.is_quantized:
        raise RecipeError(
            f"--quantize {recipe.name} of a model that is quantized already",
            hint="its own integers are in the file without it: leave --quantize out, or export "
            "the float model",
        )
    if recipe.is_static and not all((data or {}).get(s) for s in plain.signatures):
        raise CalibrationError.without(recipe.name)
    if border != "float32" and not recipe.holds("static-int8"):
        raise RecipeError(
            f"{recipe.name} has no 8-bit activations: inputs cannot be {border}",
            hint="take --quantize static-int8, or leave --io-dtype out",
        )
    place = Path(tempfile.mkdtemp(prefix="tpu-export-quantize-"))
    try:
        done = _quantized(plain, recipe, data or {}, border, lint, spoiled, place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    weakref.finalize(done.model, shutil.rmtree, place, ignore_errors=True)
    return done


def _quantized(
    plain: LiteRtModel,
    recipe: Recipe,
    data: Data,
    border: Border,
    lint: Lint,
    spoiled: Spoils | None,
    place: Path,
) -> Quantized:
    names, result = list(plain.signatures), place / "model.tflite"
    path, changed = _folded(plain, place), list[str]()
    if recipe.is_static and lint != "off":
        path, changed = without_far_masks(path, names, place)
    if lint != "auto":
        spoiled = {}
    elif spoiled is None:
        spoiled = spoils(path, names, recipe, data)
    found = activation_findings(path, recipe, spoiled)
    recipe = with_findings(recipe, found)
    run_worker(path, names, recipe, data, border, place)
    lost = weight_findings(path, result, names, recipe)
    if lost and lint == "auto":
        found, recipe = [*found, *lost], with_findings(recipe, lost)
        run_worker(path, names, recipe, data, border, place)
        lost = weight_findings(path, result, names, recipe)
    for finding in lost:
        if finding.kind == "weights":
            raise WeightsLostError.of(finding.module, finding.why, recipe.name)
    changed += hold_biases(path, result)
    keep_apart(result, names, floats=border == "float32")
    _finish(result, names, recipe, border)
    model = _model(plain, result, border)
    covered = {name: coverage(path, model.path, name, recipe) for name in names}
    if not any(c.quantized_ops for c in covered.values()):
        reasons = "; ".join(r for c in covered.values() for r in c.reasons())
        raise QuantizedNothingError(
            f"{recipe.name} leaves every op of this model in float: {reasons}",
            hint="take another recipe; dynamic-int8 and static-int8 know most ops",
        )
    return Quantized(model, recipe, covered, changed, found, spoiled)


def _finish(
    path: Path, signatures: Sequence[str], recipe: Recipe, border: Border
) -> None:
    """Do to a quantized file what ai-edge-quantizer cannot."""
    if recipe.holds(WEIGHT_BLOCKS):
        widen_blocks(path, signatures, lambda node: recipe.of(node) == WEIGHT_BLOCKS)
    if border == "uint8":
        as_uint8(path, signatures)


def _folded(plain: LiteRtModel, place: Path) -> Path:
    """Return a file without products of constants, which a quantizer takes for activations."""
    path = plain.path
    for number, name in enumerate(plain.signatures):
        folded = place / f"folded-{number}.tflite"
        if fold_constants(path, name, folded):
            path = folded
    return path


def _model(plain: LiteRtModel, path: Path, border: Border) -> LiteRtModel:
    """Return the file as a model, its inputs and outputs in the dtypes they now have."""
    signatures = {}
    for name, signature in plain.signatures.items():
        graph = read_graph(path, name)
        sides = []
        for side, tensors in (
            (signature.inputs, graph.inputs),
            (signature.outputs, graph.outputs),
        ):
            found = {n: graph.scale_of(t) for n, t in tensors.items()}
            dtypes = {n: s.dtype.name if s else "float32" for n, s in found.items()}
            sides.append(
                tuple(
                    replace(slot, dtype=dtypes[slot.name])
                    if slot.dtype == "float32"
                    else slot
                    for slot in side
                )
            )
        before = (*signature.inputs, *signature.outputs)
        now = (slot for side in sides for slot in side)
        pairs = zip(before, now, strict=True)  # a model may take integers of its own
        wrong = {new.dtype for old, new in pairs if old.dtype == "float32"} - {border}
        if wrong:
            raise RecipeError(
                f"inputs and outputs of {name!r} came out as {', '.join(sorted(wrong))}, "
                f"not {border}",
                hint=f"--io-dtype {border} goes with --quantize static-int8 throughout",
            )
        signatures[name] = replace(signature, inputs=sides[0], outputs=sides[1])
    report = replace(
        plain.report,
        size=path.stat().st_size,
        ops=op_histograms(path),
        transposes=transposes(path),
    )
    return LiteRtModel(path, signatures, report)
