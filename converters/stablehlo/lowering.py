"""An exported program as portable StableHLO: main, prepare, and the weights they take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jax.extend.core import ClosedJaxpr
from torch.export import ExportedProgram

from tpu_export.converters.stablehlo.bindings import Bindings, bind
from tpu_export.converters.stablehlo.count_functions import split_counts
from tpu_export.converters.stablehlo.coverage import check_coverage
from tpu_export.converters.stablehlo.hoist import Split, split
from tpu_export.converters.stablehlo.index_ranges import index_ranges
from tpu_export.converters.stablehlo.layout import channels_last
from tpu_export.converters.stablehlo.layout.borders import AS_TORCH, Borders
from tpu_export.converters.stablehlo.litert_doubles import without_doubles
from tpu_export.converters.stablehlo.litert_float8 import is_float8, without_float8
from tpu_export.converters.stablehlo.litert_halves import is_half, without_halves
from tpu_export.converters.stablehlo.narrowing import Argument, Interval, narrow
from tpu_export.converters.stablehlo.portable import portable_modules
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.converters.stablehlo.registry import Target
from tpu_export.converters.stablehlo.traced import Traced, slot_of, trace
from tpu_export.runtime.devices import keep_off_missing_tpu
from tpu_export.runtime.signature import (
    RNG,
    Dim,
    FunctionSpec,
    LoweredFunction,
    Signature,
)

_ON_GRID = re.compile(r"(quantized_decomposed|torchao)\.(de)?quantize_")


def lower(
    program: ExportedProgram,
    signature: Signature,
    symbol_names: Mapping[str, str],
    *,
    target: Target = "xla",
    model_file: Path | None = None,
    borders: Borders = AS_TORCH,
) -> LoweredProgram:
    """Lower one signature.

    Args:
        program: of torch.export, fresh or loaded from a .pt2.
        signature: its names, shapes and structure.
        symbol_names: torch's symbol -> the dimension's name in the signature.
        target: "xla" (TPU and CPU) or "litert".
        model_file: source lines are given relative to its folder.
        borders: for LiteRT, what comes with its channels last; `signature` says so already.

    Raises:
        UnsupportedOpsError: ops without a rule or a decomposition, all at once.
        LoweringBugError: a rule gave another shape or dtype than torch says.
    """
    keep_off_missing_tpu()
    signature = borders.of_torch(signature)
    bound = bind(program, signature)
    check_coverage(bound.program.graph_module, target, model_file)
    signature = replace(signature, ranges=index_ranges(bound.program, signature))
    traced = trace(bound, signature, target, model_file, symbol_names)
    dims = (*signature.dims, *traced.signature.counted)
    whole, integers = narrow(traced.jaxpr, _arguments(traced), dims)
    jaxpr, counts = split_counts(
        whole, (*traced.weights, *traced.rest), traced.signature.counted
    )
    if target == "litert":
        jaxpr, traced = _without_small_floats(without_doubles(jaxpr), traced)
        jaxpr, traced = _laid_out(jaxpr, traced, borders)
    parts = split(jaxpr, len(bound.weights))
    spec, prepare_spec = _specs(parts, traced)
    prepare = None
    if parts.prepare is not None and prepare_spec is not None:
        modules = portable_modules(parts.prepare, traced.target)
        prepare = LoweredFunction(prepare_spec, modules)
    functions = [
        spec,
        *([prepare_spec] if prepare_spec else []),
        *(s for _, s in counts),
    ]
    return LoweredProgram(
        signature=traced.signature,
        target=target,
        main=LoweredFunction(spec, _modules(parts.main, traced)),
        prepare=prepare,
        weights=_weights(bound, functions, traced.signature),
        counts=tuple(
            LoweredFunction(spec, _modules(closed, traced)) for closed, spec in counts
        ),
        integers=integers,
        floats=_unmarked(bound, dims) if target == "litert" else (),
    )


def _unmarked(bound: Bindings, dims: Sequence[Dim]) -> tuple[str, ...]:
    """Say of each value on a grid that a program with dynamic dimensions has no marks."""
    nodes = bound.program.graph.nodes if dims else []
    found = {n for n in nodes if _ON_GRID.match(str(n.target))}
    own = [n for n in found if n.args[0] not in found]  # else there and back
    return ("a program with dynamic dimensions",) * len(own)


def _without_small_floats(
    jaxpr: ClosedJaxpr, traced: Traced
) -> tuple[ClosedJaxpr, Traced]:
    wide = [
        replace(s, dtype="float32") if is_half(kind) or is_float8(kind) else s
        for s in traced.weights
        for kind in (np.dtype(s.dtype),)
    ]
    jaxpr = without_halves(without_float8(jaxpr, len(wide)), len(wide))
    return jaxpr, replace(traced, weights=tuple(wide))


def _laid_out(
    jaxpr: ClosedJaxpr, traced: Traced, borders: Borders
) -> tuple[ClosedJaxpr, Traced]:
    count = len(traced.weights)
    taken, given = borders.places(traced.rest, count), borders.places(traced.results)
    moved = replace(
        traced,
        signature=borders.signature(traced.signature),
        rest=borders.slots(traced.rest),
        results=borders.slots(traced.results),
    )
    return channels_last(jaxpr, count, taken, given), moved


def _arguments(traced: Traced) -> list[Argument]:
    """Return what is known of each argument of the whole signature."""
    known = {r.name: Interval(r.low, r.high) for r in traced.signature.ranges}
    return [
        Argument(f"{s.kind} {s.name}", known.get(s.name) if s.kind == "input" else None)
        for s in (*traced.weights, *traced.rest)
    ]


def _specs(parts: Split, traced: Traced) -> tuple[FunctionSpec, FunctionSpec | None]:
    prepared = []
    if parts.prepare is not None:
        prepared = [
            slot_of("prepared", f"p{i}", v.aval)
            for i, v in enumerate(parts.prepare.jaxpr.outvars)
        ]
    fresh = iter(prepared)
    leading = [
        traced.weights[i] if i is not None else next(fresh) for i in parts.boundary
    ]
    main = FunctionSpec((*leading, *traced.rest), traced.results)
    if parts.prepare is None:
        return main, None
    raw = tuple(traced.weights[i] for i in parts.weights)
    return main, FunctionSpec(raw, tuple(prepared))


def _modules(closed: ClosedJaxpr, traced: Traced) -> dict[str, bytes]:
    """Return a function that takes inputs as portable StableHLO."""
    signature = traced.signature
    dims = (*signature.dims, *signature.counted)
    empty = any(dim.minimum == 0 for dim in dims)
    return portable_modules(closed, traced.target, may_be_empty=empty)


def _weights(
    bound: Bindings, functions: Sequence[FunctionSpec], signature: Signature
) -> dict[str, torch.Tensor]:
    taken = [slot for function in functions for slot in function.arguments]
    names = {slot.name for slot in taken if slot.kind == "weight"}
    weights = {n: t for n, t in bound.weights.items() if n in names}
    weights |= bound.state
    if any(slot.name == RNG for slot in signature.state):
        weights[RNG] = torch.zeros(2, dtype=torch.uint32)
    return weights
