"""A bound program as one jaxpr, with the signature that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.extend.core import ClosedJaxpr

from tpu_export.converters.stablehlo import context
from tpu_export.converters.stablehlo.bindings import Bindings
from tpu_export.converters.stablehlo.callbacks import refuse_callbacks
from tpu_export.converters.stablehlo.claims import orders
from tpu_export.converters.stablehlo.counted import (
    Counted,
    counted_sizes,
    jax_constraints,
)
from tpu_export.converters.stablehlo.counting import Counting
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.interpreter import Interpreter
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.portable import no_tracebacks
from tpu_export.converters.stablehlo.registry import Target
from tpu_export.converters.stablehlo.shapes import input_shapes, spelled
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.signature import RNG, Signature, Slot, TensorSpec

_SEED = TensorSpec(RNG, (2,), "uint32")


@dataclass(frozen=True)
class Traced:
    """The whole signature as one jaxpr.

    Attributes:
        jaxpr: weights, state, inputs, sizes -> outputs, state, inputs, counts.
        signature: completed with state, mutated inputs and counted sizes.
        target: which rules were applied.
        weights: its first arguments.
        rest: its other arguments.
        results: without the counts.
    """

    jaxpr: ClosedJaxpr
    signature: Signature
    target: Target
    weights: tuple[Slot, ...]
    rest: tuple[Slot, ...]
    results: tuple[Slot, ...]


def trace(
    bound: Bindings,
    signature: Signature,
    target: Target,
    model_file: Path | None,
    symbol_names: Mapping[str, str],
) -> Traced:
    """Interpret the graph on JAX's tracers.

    Sizes that the data decides are counted where the model needs them: x[mask].sum() and
    a[mask] = b[mask] do not.

    Args:
        bound: the graph and what it takes.
        signature: of its inputs and outputs.
        target: which rules apply.
        model_file: source lines are relative to its folder.
        symbol_names: torch's symbol -> the dimension's name.

    Raises:
        UnsupportedOptionError: a size depends on the data in a way that cannot be counted.
    """

    def attempt(counted: Counted) -> Traced:
        return _with_equal_sizes(bound, signature, target, model_file, counted)

    try:
        return attempt(Counted())
    except UnsupportedOptionError as error:
        if target != "xla":
            raise
        counted = counted_sizes(bound.program, signature, symbol_names)
        if not counted.dims:
            raise
        if counted.may_be_zero:
            with suppress(TpuExportError):
                return attempt(counted)
        try:
            return attempt(counted.not_empty())
        except UnsupportedOptionError as another:
            raise error from another  # its words are about the data


def _with_equal_sizes(
    bound: Bindings,
    signature: Signature,
    target: Target,
    model_file: Path | None,
    counted: Counted,
) -> Traced:
    """Trace, again with what JAX did not see of the sizes where a rule failed."""
    claims: set[str] = set()
    while True:
        found: set[str] = set()
        try:
            return _trace(
                bound, signature, target, model_file, counted, sorted(claims), found
            )
        except TpuExportError:
            found |= orders(signature.constraints, signature.dims)
            if found <= claims:
                raise
            claims |= found


def _trace(
    bound: Bindings,
    signature: Signature,
    target: Target,
    model_file: Path | None,
    counted: Counted,
    claims: Sequence[str],
    equal: set[str],
) -> Traced:
    sizes = [TensorSpec(dim.name, (dim.name,), "bool") for dim in counted.dims]
    dims = (*signature.dims, *counted.dims)
    inputs = input_shapes(
        [*signature.inputs, *sizes],
        dims,
        [*jax_constraints(counted, dims), *claims],
        {dim.name for dim in counted.dims if dim.minimum == 0},
    )
    taken = len(signature.inputs)
    weights = [array_shape(tensor) for tensor in bound.weights.values()]
    state = [array_shape(tensor) for tensor in bound.state.values()]
    drew = False

    def function(*arrays: Any) -> tuple[Any, ...]:
        nonlocal drew
        n, m = len(weights), len(weights) + len(state)
        key = arrays[m]
        own = context.LoweringContext(target, key, symbolic=bool(dims))
        with context.lowering(own) as current:
            given, sized = arrays[m + 1 : m + 1 + taken], arrays[m + 1 + taken :]
            counting = Counting(
                {s: a.shape[0] for s, a in zip(counted.names, sized, strict=True)}
            )
            interpreter = Interpreter(
                target,
                model_file,
                bound.same,
                counting=counting if counted.names else None,
                equal=equal,
            )
            results = bound.results(interpreter, arrays[:n], arrays[n:m], given)
            drew = current.drew
            counts = [counting.counts[symbol] for symbol in counted.names]
            return (*results, current.key, *counts)

    with jax.enable_x64(True), no_tracebacks():
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
        counted=counted.dims,
        constraints=(*signature.constraints, *counted.constraints),
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
) -> Traced:
    """Put the random key where state slots end, or drop it when nothing was drawn."""
    n_outputs, n_state = len(signature.outputs), len(bound.state)
    last = len(shapes) - len(signature.counted) - 1  # the key, before the counts
    position = len(bound.weights) + n_state
    invars, outvars = list(jaxpr.jaxpr.invars), list(jaxpr.jaxpr.outvars)
    key_out = outvars.pop(last)
    shapes = [*shapes[:last], *shapes[last + 1 :]]
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
    given = [("input", s.name) for s in signature.inputs]
    rest = (
        *(Slot("state", s.name, s.shape, s.dtype) for s in specs),
        *_slots(given, inputs[: len(given)]),
        *(Slot("size", d.name, (d.name,), "bool") for d in signature.counted),
    )
    slots = _slots(results, shapes[: len(results)])
    return Traced(
        jaxpr=closed,
        signature=_spelled_alike(signature, rest, slots),
        target=target,
        weights=tuple(
            slot_of("weight", n, array_shape(t)) for n, t in bound.weights.items()
        ),
        rest=rest,
        results=slots,
    )


def _slots(names: Sequence[tuple[Any, str]], shapes: Sequence[Any]) -> tuple[Slot, ...]:
    pairs = zip(names, shapes, strict=True)
    return tuple(slot_of(kind, name, shape) for (kind, name), shape in pairs)


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


def array_shape(tensor: torch.Tensor) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of a tensor."""
    return jax.ShapeDtypeStruct(tuple(tensor.shape), DTYPES[tensor.dtype])


def slot_of(kind: Any, name: str, array: Any) -> Slot:
    """Return the slot of an array of that shape and dtype."""
    shape = tuple(map(spelled, array.shape))
    return Slot(kind, name, shape, jnp.dtype(array.dtype).name)
