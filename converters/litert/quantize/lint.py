"""What a recipe would spoil, and the rules that avoid it.

Only ops that the user said nothing particular of get another number format: a rule with a module
or ops wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import Graph, Node, read_graph
from tpu_export.converters.litert.quantize.activations import Activations
from tpu_export.converters.litert.quantize.errors import WeightsLostError
from tpu_export.converters.litert.quantize.findings import Finding, merged, rules_of
from tpu_export.converters.litert.quantize.kept import lost_weights
from tpu_export.converters.litert.quantize.noise import float_values
from tpu_export.converters.litert.quantize.recipes import FLOAT, Recipe

# "auto": all fixes; "masks": far values of masks are clamped only; "off": none.
Lint: TypeAlias = Literal["auto", "masks", "off"]
# What int8 would spoil, by signature, whatever a recipe makes int8.
Spoils: TypeAlias = Mapping[str, Sequence[Finding]]
_INT8 = "static-int8"
_CALLS = 4  # that activations are looked at on; calibration takes all


def spoils(
    path: Path,
    signatures: Iterable[str],
    recipe: Recipe,
    data: Mapping[str, Sequence[Mapping[str, Array]]],
) -> Spoils:
    """Run a float file, and look for activations that int8 would spoil.

    Args:
        data: calls of each signature, for static recipes.
    """
    if not recipe.holds(_INT8):
        return {}
    found = {}
    for name in signatures:
        graph = read_graph(path, name)
        values = float_values(graph, data[name][:_CALLS])
        found[name] = tuple(Activations(graph, values).findings())
    return found


def activation_findings(path: Path, recipe: Recipe, spoiled: Spoils) -> list[Finding]:
    """Return what is spoiled of the activations of those ops that a recipe has in int8."""
    return merged(
        finding
        for name, found in spoiled.items()
        for finding in _of_graph(read_graph(path, name), recipe, found)
    )


def _of_graph(
    graph: Graph, recipe: Recipe, spoiled: Sequence[Finding]
) -> Iterator[Finding]:
    ours = {(n.place.module, n.name) for n in graph.nodes if _given(n, recipe) == _INT8}
    counts = Counter((n.place.module, n.name) for n in graph.nodes)
    for finding in spoiled:
        key = finding.module, finding.op
        if key in ours:
            yield replace(finding, count=counts[key])


def weight_findings(
    path: Path, quantized: Path, signatures: Iterable[str], recipe: Recipe
) -> list[Finding]:
    """Look for constants of a float file that the quantized one lost.

    Raises:
        WeightsLostError: weights of an op that the user chose the number format of.
    """
    found = []
    for name in signatures:
        for lost in lost_weights(path, quantized, name):
            node, own = lost.node, _given(lost.node, recipe)
            kind = "weights" if lost.is_weight else "constants"
            rows = f"{lost.rows[0]} of {lost.rows[1]} rows of {kind}"
            if own:
                why = f"{rows} would be lost in {own}"
                place = node.place.module, node.name
                found.append(Finding(kind, *place, 1, _wider(own), None, why))
            elif lost.is_weight:
                raise WeightsLostError.of(str(node.place), rows, recipe.name)
    return merged(found)


def with_findings(recipe: Recipe, found: Sequence[Finding]) -> Recipe:
    """Return the recipe with rules that avoid what was found."""
    rules = rules_of(found)
    return Recipe(
        recipe.name, (*recipe.rules, *rules), linted=recipe.linted + len(rules)
    )


def _wider(recipe: str) -> str:
    """Return a number format that holds any weights: one with a scale for each channel, or none."""
    kind, _, bits = recipe.partition("-int4")
    return f"{kind}-int8" if bits else FLOAT


def _given(node: Node, recipe: Recipe) -> str:
    """Return the recipe of an op; "" where the user said so in particular, or nothing."""
    number = recipe.rule_of(node.place.module, node.name)
    rule = None if number is None else recipe.rules[number]
    return rule.recipe if rule and rule.module == "*" and not rule.ops else ""
