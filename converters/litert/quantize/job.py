"""The job of a quantizer's worker: which config ai-edge-quantizer has for which op."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tpu_export.converters.litert.exchange import Array, write_arrays
from tpu_export.converters.litert.graph import Graph, Node, nodes_of, read_graph
from tpu_export.converters.litert.process import run_module
from tpu_export.converters.litert.quantize.blocks import fill_blocks
from tpu_export.converters.litert.quantize.errors import (
    QuantizerFailedError,
    RecipeError,
)
from tpu_export.converters.litert.quantize.recipes import FLOAT, Recipe, Rule, unused

Data: TypeAlias = Mapping[str, Sequence[Mapping[str, Array]]]
Border: TypeAlias = Literal["float32", "int8", "uint8"]
_WORKER = "tpu_export.converters.litert.quantize_worker"


def run_worker(
    plain: Path,
    signatures: Sequence[str],
    recipe: Recipe,
    data: Data,
    border: Border,
    place: Path,
) -> None:
    """Write model.tflite to a directory, quantized by the rules of a recipe.

    Raises:
        RecipeError: a rule is about nothing in this model.
        QuantizerFailedError: ai-edge-quantizer refused the file, or died.
    """
    graphs = [read_graph(plain, name) for name in signatures]
    data = data if recipe.is_static else {}
    for name, calls in data.items():
        for i, call in enumerate(calls):
            folder = place / "data" / name / str(i)
            if not folder.exists():  # of a run before
                write_arrays(folder, call)
    job = {
        "plain": str(plain),
        "static": recipe.is_static,
        "configs": _configs(graphs, recipe),
        "border": Rule(FLOAT if border == "float32" else "static-int8").configs()[0],
        "calls": {name: len(calls) for name, calls in data.items()},
    }
    (place / "job.json").write_text(json.dumps(job))
    status, words = run_module(_WORKER, str(place))
    if status == 0:
        fill_blocks(place / "model.tflite")
        return
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
    found: dict[Rule, list[str]] = {Rule(FLOAT): _inner_scopes(graphs)}
    for graph in graphs:
        for node in graph.nodes:
            rule = Rule(_with_kernel(recipe.of(node), graph, node))
            found.setdefault(rule, []).append(_scope(graph.subgraph, node.outputs))
    most = Counter({rule: len(scopes) for rule, scopes in found.items()})
    (base, _), *_ = most.most_common(1)
    rest = [
        config | {"scopes": sorted(set(scopes))}
        for rule, scopes in found.items()
        if rule != base and scopes
        for config in rule.configs()
    ]
    return [*base.configs(), *rest]


def _inner_scopes(graphs: Sequence[Graph]) -> list[str]:
    """Return the scopes of ops in branches, loops and reductions: none is calibrated."""
    own = [graph.definition.subgraphIndex for graph in graphs]
    model = graphs[0].model
    return [
        _scope(inner, node.outputs)
        for i, inner in enumerate(model.subgraphs)
        for node in nodes_of(model, inner)
        if i not in own
    ]


def _with_kernel(recipe: str, graph: Graph, node: Node) -> str:
    """Return a number format that an op has a kernel of: products of batches are few.

    With a constant of integers, BATCH_MATMUL of int8 or int16 activations makes zeros; with one on
    the left and floats on the right, the runtime refuses it.
    """
    constants = [graph.is_constant(t) for t in node.inputs[:2]]
    is_static = Rule(recipe).is_static and any(constants)
    is_dynamic = recipe.startswith("dynamic-") and constants[0]
    if node.name == "BATCH_MATMUL" and (is_static or is_dynamic):
        return "weight-int8"
    return recipe


def _scope(subgraph: Any, outputs: Sequence[int]) -> str:
    """Return the name that ai-edge-quantizer knows an op by: those of its results."""
    names = (subgraph.tensors[i].name.decode() for i in outputs)
    return "".join(f"{name};" for name in names)[:10000]
