"""A float .tflite to a quantized one: rules to ops, the worker, and what came out."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tpu_export.converters.litert.exchange import Array, write_arrays
from tpu_export.converters.litert.flatbuffer import op_histograms
from tpu_export.converters.litert.fold import fold_constants
from tpu_export.converters.litert.graph import Graph, Node, read_graph
from tpu_export.converters.litert.model import LiteRtModel
from tpu_export.converters.litert.process import run_module
from tpu_export.converters.litert.quantize.blocks import widen_blocks
from tpu_export.converters.litert.quantize.borders import as_uint8
from tpu_export.converters.litert.quantize.coverage import Coverage, coverage
from tpu_export.converters.litert.quantize.errors import (
    CalibrationError,
    QuantizedNothingError,
    QuantizerFailedError,
    RecipeError,
)
from tpu_export.converters.litert.quantize.recipes import (
    FLOAT,
    WEIGHT_BLOCKS,
    Recipe,
    Rule,
    unused,
)
from tpu_export.converters.litert.transposes import transposes

Data: TypeAlias = Mapping[str, Sequence[Mapping[str, Array]]]
Border: TypeAlias = Literal["float32", "int8", "uint8"]
_WORKER = "tpu_export.converters.litert.quantize.worker"


@dataclass(frozen=True)
class Quantized:
    """A quantized file and what became of the float one.

    Attributes:
        coverage: of each signature, by name.
        clamped: what was changed before, in words.
    """

    model: LiteRtModel
    recipe: Recipe
    coverage: Mapping[str, Coverage]
    clamped: Sequence[str]


def quantize(
    plain: LiteRtModel,
    recipe: Recipe,
    data: Data | None = None,
    *,
    border: Border = "float32",
) -> Quantized:
    """Quantize a float .tflite.

    Args:
        plain: of `convert`.
        recipe: of `read_recipe`.
        data: calls of each signature, inputs and state by LiteRT's names; static recipes
            take the range of each activation from them.
        border: dtype of floating-point inputs and outputs; integers need a static recipe.

    Raises:
        RecipeError: a rule is about nothing in this model.
        CalibrationError: a static recipe without data.
        QuantizedNothingError: the whole file would stay in float.
        QuantizerFailedError: ai-edge-quantizer refused it, or died.
    """
    if recipe.is_static and not all((data or {}).get(s) for s in plain.signatures):
        raise CalibrationError.without(recipe.name)
    if border != "float32" and not recipe.is_static:
        raise RecipeError(
            f"{recipe.name} keeps activations in float: inputs cannot be {border}",
            hint="take --quantize static-int8, or leave --io-dtype out",
        )
    place = Path(tempfile.mkdtemp(prefix="tpu-export-quantize-"))
    try:
        path = _folded(plain, place)
        done = _run(path, list(plain.signatures), recipe, data or {}, border, place)
        _finish(place / "model.tflite", list(plain.signatures), recipe, border)
        model = _model(plain, place / "model.tflite", border)
        found = {
            name: coverage(path, model.path, name, recipe) for name in plain.signatures
        }
        if not any(c.quantized_ops for c in found.values()):
            reasons = "; ".join(r for c in found.values() for r in c.reasons())
            raise QuantizedNothingError(
                f"{recipe.name} leaves every op of this model in float: {reasons}",
                hint="take another recipe; dynamic-int8 and static-int8 know most ops",
            )
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    weakref.finalize(model, shutil.rmtree, place, ignore_errors=True)
    return Quantized(model, recipe, found, done["clamped"])


def _finish(
    path: Path, signatures: Sequence[str], recipe: Recipe, border: Border
) -> None:
    """Do to a quantized file what ai-edge-quantizer cannot."""
    if any(rule.recipe == WEIGHT_BLOCKS for rule in recipe.rules):
        widen_blocks(
            path, signatures, lambda node: _recipe_of(node, recipe) == WEIGHT_BLOCKS
        )
    if border == "uint8":
        as_uint8(path, signatures)


def _recipe_of(node: Node, recipe: Recipe) -> str:
    number = recipe.rule_of(node.place.module, node.name)
    return FLOAT if number is None else recipe.rules[number].recipe


def _folded(plain: LiteRtModel, place: Path) -> Path:
    """Return a file without products of constants, which a quantizer takes for activations."""
    path = plain.path
    for number, name in enumerate(plain.signatures):
        folded = place / f"folded-{number}.tflite"
        if fold_constants(path, name, folded):
            path = folded
    return path


def _run(
    plain: Path,
    signatures: Sequence[str],
    recipe: Recipe,
    data: Data,
    border: Border,
    place: Path,
) -> Any:
    graphs = [read_graph(plain, name) for name in signatures]
    data = data if recipe.is_static else {}
    for name, calls in data.items():
        for i, call in enumerate(calls):
            write_arrays(place / "data" / name / str(i), call)
    job = {
        "plain": str(plain),
        "static": recipe.is_static,
        "signatures": list(signatures),
        "configs": _configs(graphs, recipe),
        "borders": ["INPUT", "OUTPUT"] if border == "float32" else [],
        "calls": {name: len(calls) for name, calls in data.items()},
    }
    (place / "job.json").write_text(json.dumps(job))
    status, words = run_module(_WORKER, str(place))
    if status == 0:
        return json.loads((place / "done.json").read_text())
    report = place / "error.json"
    said = json.loads(report.read_text())["failed"] if report.exists() else words
    raise QuantizerFailedError(
        f"ai-edge-quantizer failed on {recipe.name}: {' '.join(said.split())[:600]}",
        hint="leave the op or module it names in float with a recipe.toml",
    )


def _configs(graphs: Sequence[Graph], recipe: Recipe) -> list[dict[str, Any]]:
    """Return the quantizer's config of most ops, then those of others with their scopes."""
    ops = [(n.place.module, n.name) for graph in graphs for n in graph.nodes]
    if idle := unused(recipe, ops):
        modules = ", ".join(sorted({m or '""' for m, _ in ops})[:8])
        raise RecipeError(
            f"a rule of {recipe.name} is about no op: module {idle[0].module!r}, "
            f"ops {list(idle[0].ops) or 'all'}",
            hint=f"modules of this model: {modules}; ops: "
            f"{', '.join(sorted({op for _, op in ops})[:8])}",
        )
    found: dict[Rule, list[str]] = {}
    for graph in graphs:
        for node in graph.nodes:
            rule = Rule(_recipe_of(node, recipe))
            found.setdefault(rule, []).append(_scope(graph, node.outputs))
    most = Counter({rule: len(scopes) for rule, scopes in found.items()})
    (base, _), *_ = most.most_common(1)
    rest = [
        rule.config() | {"scopes": sorted(set(scopes))}
        for rule, scopes in found.items()
        if rule != base
    ]
    return [base.config(), *rest]


def _scope(graph: Graph, outputs: Sequence[int]) -> str:
    """Return the name that ai-edge-quantizer knows an op by: those of its results."""
    names = (graph.subgraph.tensors[i].name.decode() for i in outputs)
    return "".join(f"{name};" for name in names)[:10000]


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
