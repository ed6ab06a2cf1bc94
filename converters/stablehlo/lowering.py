"""An exported program as portable StableHLO: main, prepare, and the weights they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import export
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from torch.export import ExportedProgram

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.assertions import without_assertions
from tpu_export.converters.stablehlo.bindings import Bindings, bind
from tpu_export.converters.stablehlo.callbacks import refuse_callbacks
from tpu_export.converters.stablehlo.coverage import check_coverage
from tpu_export.converters.stablehlo.hoist import Split, split
from tpu_export.converters.stablehlo.index_ranges import index_ranges
from tpu_export.converters.stablehlo.interpreter import Interpreter
from tpu_export.converters.stablehlo.litert_forms import litert_forms
from tpu_export.converters.stablehlo.narrowing import Argument, Interval, narrow
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.platforms import resolved, special_platforms
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.converters.stablehlo.registry import Target
from tpu_export.converters.stablehlo.shapes import input_shapes, spelled
from tpu_export.runtime.devices import keep_off_missing_tpu
from tpu_export.runtime.signature import (
    RNG,
    FunctionSpec,
    LoweredFunction,
    Signature,
    Slot,
    TensorSpec,
)

_SEED = TensorSpec(RNG, (2,), "uint32")


def lower(
    program: ExportedProgram,
    signature: Signature,
    symbol_names: Mapping[str, str],
    *,
    target: Target = "xla",
    model_file: Path | None = None,
) -> LoweredProgram:
    """Lower one signature.

    Args:
        program: of torch.export, fresh or loaded from a .pt2.
        signature: its names, shapes and structure.
        symbol_names: torch's symbol -> the dimension's name in the signature.
        target: "xla" (TPU and CPU) or "litert".
        model_file: source lines are given relative to its folder.

    Raises:
        UnsupportedOpsError: ops without a rule or a decomposition, all at once.
        LoweringBugError: a rule gave another shape or dtype than torch says.
    """
    keep_off_missing_tpu()
    bound = bind(program, signature)
    check_coverage(bound.program.graph_module, target, model_file)
    signature = replace(signature, ranges=index_ranges(bound.program, signature))
    traced = _trace(bound, signature, target, model_file)
    jaxpr, integers = narrow(traced.jaxpr, _arguments(traced), signature.dims)
    parts = split(jaxpr, len(bound.weights))
    spec, prepare_spec = _specs(parts, traced)
    main = LoweredFunction(spec, _main_modules(parts.main, traced))
    prepare = None
    if parts.prepare is not None and prepare_spec is not None:
        modules = _modules(parts.prepare, traced.target)
        prepare = LoweredFunction(prepare_spec, modules)
    return LoweredProgram(
        signature=traced.signature,
        target=target,
        main=main,
        prepare=prepare,
        weights=_weights(bound, spec, prepare_spec, traced.signature),
        integers=integers,
    )


@dataclass(frozen=True)
class _Traced:
    """The whole signature as one jaxpr: weights, state, inputs -> outputs, state, inputs."""

    jaxpr: ClosedJaxpr
    signature: Signature
    target: Target
    weights: tuple[Slot, ...]
    rest: tuple[Slot, ...]
    results: tuple[Slot, ...]


def _trace(
    bound: Bindings, signature: Signature, target: Target, model_file: Path | None
) -> _Traced:
    inputs = input_shapes(signature.inputs, signature.dims)
    weights = [_shape(tensor) for tensor in bound.weights.values()]
    state = [_shape(tensor) for tensor in bound.state.values()]
    drew = False

    def function(*arrays: Any) -> tuple[Any, ...]:
        nonlocal drew
        n, m = len(weights), len(weights) + len(state)
        key = arrays[m]
        with context.lowering(context.LoweringContext(target, key)) as current:
            interpreter = Interpreter(target, model_file, bound.same)
            results = bound.results(
                interpreter, arrays[:n], arrays[n:m], arrays[m + 1 :]
            )
            drew = current.drew
            return (*results, current.key)

    with jax.enable_x64(True), _no_tracebacks():
        key = jax.ShapeDtypeStruct((2,), jnp.uint32)
        jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(
            *weights, *state, key, *inputs
        )
    refuse_callbacks(jaxpr)
    slots = list(bound.state_specs)
    signature = replace(
        signature,
        state=(*slots, _SEED) if drew else tuple(slots),
        mutated_inputs=bound.mutated_inputs,
    )
    return _assemble(jaxpr, shapes, bound, signature, target, inputs, drew)


def _assemble(
    jaxpr: ClosedJaxpr,
    shapes: Sequence[Any],
    bound: Bindings,
    signature: Signature,
    target: Target,
    inputs: Sequence[Any],
    drew: bool,
) -> _Traced:
    """Put the random key where state slots end, or drop it when nothing was drawn."""
    n_outputs, n_state = len(signature.outputs), len(bound.state)
    position = len(bound.weights) + n_state
    invars, outvars = list(jaxpr.jaxpr.invars), list(jaxpr.jaxpr.outvars)
    key_out = outvars.pop()
    shapes = list(shapes[:-1])
    if drew:
        outvars.insert(n_outputs + n_state, key_out)
        shapes.insert(n_outputs + n_state, jax.ShapeDtypeStruct((2,), jnp.uint32))
    else:
        invars.pop(position)
    closed = ClosedJaxpr(
        jaxpr.jaxpr.replace(
            invars=invars,
            outvars=outvars,
            debug_info=jaxpr.jaxpr.debug_info.with_unknown_names(),
        ),
        jaxpr.consts,
    )
    specs = signature.state
    results = [
        *(("output", s.name) for s in signature.outputs),
        *(("state", s.name) for s in specs),
        *(("input", name) for name in signature.mutated_inputs),
    ]
    rest = (
        *(Slot("state", s.name, s.shape, s.dtype) for s in specs),
        *(
            _slot("input", s.name, shape)
            for s, shape in zip(signature.inputs, inputs, strict=True)
        ),
    )
    slots = tuple(
        _slot(kind, name, shape)
        for (kind, name), shape in zip(results, shapes, strict=True)
    )
    return _Traced(
        jaxpr=closed,
        signature=_spelled_alike(signature, rest, slots),
        target=target,
        weights=tuple(_slot("weight", n, _shape(t)) for n, t in bound.weights.items()),
        rest=rest,
        results=slots,
    )


def _spelled_alike(
    signature: Signature, arguments: Sequence[Slot], results: Sequence[Slot]
) -> Signature:
    """Return the signature with main's shapes: torch and JAX spell (h - 1)//2 apart."""
    inputs = {slot.name: slot.shape for slot in arguments if slot.kind == "input"}
    outputs = [slot.shape for slot in results if slot.kind == "output"]
    return replace(
        signature,
        inputs=tuple(replace(s, shape=inputs[s.name]) for s in signature.inputs),
        outputs=tuple(
            replace(s, shape=shape)
            for s, shape in zip(signature.outputs, outputs, strict=True)
        ),
    )


def _arguments(traced: _Traced) -> list[Argument]:
    """Return what is known of each argument of the whole signature."""
    known = {r.name: Interval(r.low, r.high) for r in traced.signature.ranges}
    return [
        Argument(f"{s.kind} {s.name}", known.get(s.name) if s.kind == "input" else None)
        for s in (*traced.weights, *traced.rest)
    ]


def _specs(parts: Split, traced: _Traced) -> tuple[FunctionSpec, FunctionSpec | None]:
    prepared = []
    if parts.prepare is not None:
        prepared = [
            _slot("prepared", f"p{i}", v.aval)
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


def _main_modules(main: ClosedJaxpr, traced: _Traced) -> dict[str, bytes]:
    modules = _modules(main, traced.target)
    if all(dim.minimum for dim in traced.signature.dims):
        return modules
    return {name: without_assertions(module) for name, module in modules.items()}


def _modules(closed: ClosedJaxpr, target: Target) -> dict[str, bytes]:
    """Export for TPU, and per platform where its program is another.

    JAX lowers some things differently on CPU, and the user may have rules for one platform.
    """
    if target != "xla":
        return {"": _export(litert_forms(resolved(closed, "")), "cpu")}
    modules = {"": _export(resolved(closed, ""), "tpu")}
    for platform in sorted({"cpu", *special_platforms(closed)}):
        module = _export(resolved(closed, platform), platform)
        if module != modules[""]:
            modules[platform] = module
    return modules


def _export(closed: ClosedJaxpr, platform: str) -> bytes:
    function = jaxpr_as_fun(closed)

    def main(*arrays: Any) -> tuple[Any, ...]:
        return tuple(function(*arrays))

    shapes = [
        jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars
    ]
    with jax.enable_x64(True), _no_tracebacks():
        jitted = jax.jit(main, keep_unused=True)
        exported = export.export(jitted, platforms=(platform,))(*shapes)
    return bytes(exported.mlir_module_serialized)


def _no_tracebacks() -> Any:
    """Keep paths of this host out of the program: its bytes depend on the model alone."""
    from jax._src.config import traceback_in_locations_limit

    return traceback_in_locations_limit(0)


def _weights(
    bound: Bindings,
    main: FunctionSpec,
    prepare: FunctionSpec | None,
    signature: Signature,
) -> dict[str, torch.Tensor]:
    taken = [*main.arguments, *(prepare.arguments if prepare else ())]
    names = {slot.name for slot in taken if slot.kind == "weight"}
    weights = {n: t for n, t in bound.weights.items() if n in names}
    weights |= bound.state
    if any(slot.name == RNG for slot in signature.state):
        weights[RNG] = torch.zeros(2, dtype=torch.uint32)
    return weights


def _shape(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(tensor.shape), DTYPES[tensor.dtype])


def _slot(kind: Any, name: str, array: Any) -> Slot:
    shape = tuple(map(spelled, array.shape))
    return Slot(kind, name, shape, jnp.dtype(array.dtype).name)
