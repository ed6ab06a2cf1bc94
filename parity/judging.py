"""Run a float and a quantized .tflite on what torch eager was run on, and judge them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.litert.engines import Calls, run_calls
from tpu_export.converters.litert.graph import CASTS, Graph, read_graph
from tpu_export.converters.litert.racing import race
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.capture import Captured
from tpu_export.parity.agreement import Agreement, agreement
from tpu_export.parity.eager import Array, Sample
from tpu_export.parity.references import Reference
from tpu_export.parity.rungs import flat_inputs, with_state
from tpu_export.parity.verdict import Sizes, Verdict
from tpu_export.runtime.signature import Signature


def judge(
    known: Sequence[Reference],
    state: Mapping[str, Array],
    plain: Path,
    quantized: Path,
    *,
    seconds: float = 1.0,
) -> Verdict:
    """Compare two files with eager and each other; time them.

    Args:
        known: samples and eager's results on them, of each signature.
        state: initial values of the state slots, by name.
        seconds: about how long each engine is timed on each signature; 0: not at all.
    """
    rows: list[Agreement] = []
    races, casts = {}, 0
    for reference in known:
        name = reference.signature.name
        graphs = read_graph(plain, name), read_graph(quantized, name)
        inputs = [flat_inputs(reference.signature, x) for x in reference.samples]
        found = [
            outputs_of(path, graph, inputs, reference.signature, state)
            for path, graph in zip((plain, quantized), graphs, strict=True)
        ]
        rows += _rows(reference, *found)
        casts += sum(node.name in CASTS for node in graphs[1].nodes)
        if seconds:
            first = with_state(inputs[0], state_of(reference.signature, state))
            feeds = tuple(as_taken(graph, first) for graph in graphs)
            races[name] = race(
                (plain, quantized), (feeds[0], feeds[1]), name, seconds=seconds
            )
    sizes = Sizes(plain.stat().st_size, quantized.stat().st_size)
    return Verdict(rows, sizes, races, casts)


def real_samples(
    captured: Captured, data: Sequence[Mapping[str, Array]]
) -> list[Sample]:
    """Return calibration or validation data, by names of inputs, as calls of the model."""
    args, kwargs = captured.example
    leaves, tree = pytree.tree_flatten((args, dict(kwargs)))
    names = [spec.name for spec in captured.signature.inputs]
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    samples = []
    for number, arrays in enumerate(data):
        own = list(leaves)
        for place, name in zip(places, names, strict=True):
            own[place] = torch.from_numpy(np.array(arrays[name])).to(
                leaves[place].dtype
            )
        positional, keyword = pytree.tree_unflatten(own, tree)
        samples.append(Sample(f"data {number}", positional, keyword))
    return samples


def initial_state(programs: Iterable[LoweredProgram]) -> dict[str, Array]:
    """Return what state slots start from, by name."""
    return {
        slot.name: np.array(as_numpy(p.weights[slot.name]))
        for p in programs
        for slot in p.signature.state
    }


def state_of(signature: Signature, state: Mapping[str, Array]) -> dict[str, Array]:
    """Return the initial values of a signature's slots."""
    return {slot.name: state[slot.name] for slot in signature.state}


def as_taken(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs in the dtypes that a file takes: integers where it is quantized."""
    scales = {name: graph.scale_of(t) for name, t in graph.inputs.items()}
    return {
        n: s.quantized(values[n]) if s and values[n].dtype.kind == "f" else values[n]
        for n, s in scales.items()
    }


def as_numbers(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return outputs as the numbers that they stand for."""
    scales = {name: graph.scale_of(t) for name, t in graph.outputs.items()}
    return {n: s.value(values[n]) if (s := scales[n]) else v for n, v in values.items()}


def outputs_of(
    path: Path,
    graph: Graph,
    inputs: Sequence[Mapping[str, Array]],
    signature: Signature,
    state: Mapping[str, Array],
) -> list[dict[str, Array]]:
    """Return a file's outputs as numbers, for each call; state goes from call to call."""
    name = signature.name
    if not signature.state:
        (found,) = run_calls(
            path, "interpreter", [Calls(name, [as_taken(graph, x) for x in inputs])]
        )
        return [as_numbers(graph, values) for values in found]
    slots, results = state_of(signature, state), []
    for (
        own
    ) in inputs:  # a start each: the integers of a state may differ on either side
        call = as_taken(graph, with_state(own, slots))
        ((values,),) = run_calls(path, "interpreter", [Calls(name, [call])])
        results.append(as_numbers(graph, values))
        slots = {slot: results[-1][f"state.{slot}"] for slot in slots}
    return results


def stepped(
    path: Path,
    inputs: Sequence[Mapping[str, Array]],
    signature: Signature,
    state: Mapping[str, Array],
) -> list[dict[str, Array]]:
    """Return inputs with the state that each call finds, as a float file leaves it."""
    if not signature.state:
        return [dict(own) for own in inputs]
    graph = read_graph(path, signature.name)
    made = outputs_of(path, graph, inputs, signature, state)
    first = state_of(signature, state)
    later = [{slot: run[f"state.{slot}"] for slot in first} for run in made[:-1]]
    return [
        with_state(own, found)
        for own, found in zip(inputs, [first, *later], strict=True)
    ]


def _rows(
    reference: Reference,
    plain: Sequence[Mapping[str, Array]],
    quantized: Sequence[Mapping[str, Array]],
) -> list[Agreement]:
    rows = []
    for i, spec in enumerate(reference.signature.outputs):
        eager = [call.outputs[i] for call in reference.run.calls]
        floats, integers = ([x[spec.name] for x in side] for side in (plain, quantized))
        names = (reference.signature.name, spec.name)
        rows += [
            agreement((*names, "float", "eager"), floats, eager),
            agreement((*names, "quantized", "eager"), integers, eager),
            agreement((*names, "quantized", "float"), integers, floats),
        ]
    return rows
