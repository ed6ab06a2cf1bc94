"""Cases of the bank, quantized, held against the reference simulation.

    PYTHONPATH=tests python -m litert_sweep.int8 [CASE …]

Each op is computed on what the file itself hands it, so that no error of others is in it. It is
right within TOLERANCE: steps of its result's scale, of its scaled input, or a share of its result.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from test_cases import EXPORTABLE, case

from litert_sweep.bank import samples_of
from litert_sweep.simulation import Simulation
from tpu_export.converters.litert import LiteRtModel, convert
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.fold import fold_constants
from tpu_export.converters.litert.graph import Graph, fork
from tpu_export.converters.litert.isolate import name_outputs, tensor_values
from tpu_export.converters.litert.quantize import quantize, read_recipe
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.judging import initial_state, stepped
from tpu_export.parity.layer_runs import Pair, read_pair
from tpu_export.parity.rungs import flat_inputs
from tpu_export.runtime.errors import TpuExportError

RECIPES = ("dynamic-int8", "static-int8")
# static: a step, as kernels round twice where the simulation rounds once. scaled: a step of the
# input times the largest weight, as kernels find the range of a row in float32. float: the order
# of sums.
TOLERANCE = {"static": 1.001, "scaled": 1.001, "float": 1e-4}


@dataclass(frozen=True)
class Int8:
    """What became of a case in a recipe.

    Attributes:
        verdict: "right", "wrong", or the code of the error that refused it.
        detail: the words, or the ops that are wrong.
        ops: how many were compared, all that the file has.
    """

    verdict: str
    detail: str = ""
    ops: int = 0


def judge_case(name: str, lint: str = "auto") -> dict[str, Int8]:
    """Return what becomes of a case of the bank, by recipe."""
    bank = case(name)
    model, args, kwargs = bank.make()
    shapes = getattr(bank, "DYNAMIC", None)
    try:
        captured = capture(model, args, kwargs, dynamic_shapes=shapes)
        program = lower(captured, target="litert").program
        edge = convert(
            {captured.name: program}, dims={captured.name: captured.example_dims()}
        )
    except TpuExportError as error:
        return {recipe: Int8(error.code, str(error)) for recipe in RECIPES}
    path = edge.path.with_name("folded.tflite")
    folded = fold_constants(edge.path, captured.name, path)
    plain = replace(edge, path=path) if folded else edge
    signature, state = program.signature, initial_state([program])
    inputs = [flat_inputs(signature, s) for s in samples_of(bank, captured)]
    calls = stepped(plain.path, inputs, signature, state)
    return {r: _judged(plain, r, captured.name, calls, lint) for r in RECIPES}


def _judged(
    plain: LiteRtModel,
    recipe: str,
    name: str,
    calls: Sequence[Mapping[str, Array]],
    lint: str,
) -> Int8:
    try:
        done = quantize(plain, read_recipe(recipe), {name: calls}, lint=lint)
    except TpuExportError as error:
        return Int8(error.code, str(error))
    pair = read_pair(plain.path, done.model.path, name, calls)
    try:
        wrong = list(_wrong_ops(pair))
    except TpuExportError as error:
        wrong = [f"it does not run: {error}"]
    count = len(pair.integer.nodes)
    return Int8("wrong" if wrong else "right", "; ".join(wrong), count)


def _tapped(graph: Graph) -> Graph:
    """Return the graph with the results of all ops, casts as well, as outputs."""
    result = fork(graph)
    name_outputs(result, (t for node in graph.nodes for t in node.outputs))
    return result


def _wrong_ops(pair: Pair) -> Iterator[str]:
    """Yield the ops of a quantized file that are not what the simulation makes of their inputs."""
    simulation, graph = Simulation(pair), pair.integer
    actual = tensor_values(_tapped(graph), pair.calls())
    for call, found in zip(pair.samples, actual, strict=True):
        values = simulation.given(call)
        for position, node in enumerate(graph.nodes):
            made = simulation.made(position, values)
            for tensor, want in made.items():
                scale = graph.scale_of(tensor)
                got = found[tensor]
                values[tensor] = got if scale is None else scale.value(got)
                yield from (
                    f"{node.name} {position} of {node.place.module or 'the root'}: {words}"
                    for words in _difference(simulation, position, values, tensor, want)
                )


def _difference(
    simulation: Simulation,
    position: int,
    values: Mapping[int, Array],
    tensor: int,
    want: Array,
) -> Iterator[str]:
    got, scale = values[tensor], simulation.pair.integer.scale_of(tensor)
    if want.dtype.kind != "f":
        if not np.array_equal(got, want):
            yield f"{np.mean(got != want):.1%} of integers differ"
        return
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.abs(got.astype(np.float64) - want))
    if scale is not None:
        kind, unit = "static", scale.scale
    elif simulation.scales(position):
        kind, unit = "scaled", simulation.unit(position, values)
    else:
        finite = want[np.isfinite(want)]
        kind, unit = "float", float(np.abs(finite).max(initial=0))
    steps = float(np.max(error, initial=0)) / (unit or 1.0)
    if not steps <= TOLERANCE[kind]:
        yield f"{steps:.3g} of {TOLERANCE[kind]:g} ({kind})"


def main(names: Sequence[str]) -> int:
    """Print a line for each case and recipe, and the totals; 1 where one is wrong."""
    warnings.simplefilter("ignore")
    totals = {recipe: Counter[str]() for recipe in RECIPES}
    for name in names or EXPORTABLE:
        for recipe, found in judge_case(name).items():
            totals[recipe][found.verdict] += 1
            words = f"{found.ops} ops {found.detail.partition(chr(10))[0]}"
            print(f"{name} {recipe}: {found.verdict} {words}", flush=True)
    for recipe, counts in totals.items():
        print(f"{recipe}: {dict(counts)}")
    return int(any(counts["wrong"] for counts in totals.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
