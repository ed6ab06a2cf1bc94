"""A lowered signature with every size and every weight known: what the converter takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from tpu_export.converters.litert.arithmetic import computed
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.converters.stablehlo.refine import refined
from tpu_export.runtime.devices import XLA_CPU_OPTIONS
from tpu_export.runtime.signature import FunctionSpec, Slot
from tpu_export.runtime.stablehlo import portable_callable, static_shape, static_shapes


@dataclass(frozen=True)
class StaticProgram:
    """One signature.

    Attributes:
        module: portable StableHLO of main, without a dynamic size.
        spec: its calling convention.
        weights: main's leading arguments, by "kind/name".
    """

    module: bytes
    spec: FunctionSpec
    weights: Mapping[str, Array]

    def run(self, given: Sequence[Array]) -> list[Array]:
        """Return main's results on XLA:CPU, given its state and inputs in order."""
        return _run(self.module, self.spec, [*self.weights.values(), *given])


def static_program(
    program: LoweredProgram,
    dims: Mapping[str, int],
    weights: Mapping[str, Array] | None = None,
) -> StaticProgram:
    """Bind every dynamic dimension to a size, and compute what depends on weights only.

    Args:
        program: of any number of sizes.
        dims: a size for each dynamic dimension.
        weights: of `weights_of`, where they are computed already.
    """
    spec, module = program.main.spec, program.main.module("cpu")
    if any(isinstance(d, str) for s in spec.arguments for d in s.shape):
        module = refined(module, spec, dims)
        spec = FunctionSpec(_bound(spec.arguments, dims), _bound(spec.results, dims))
    found = weights_of(program) if weights is None else weights
    return StaticProgram(module, spec, found)


def leading_slots(spec: FunctionSpec) -> list[Slot]:
    """Return the arguments that become constants."""
    return [s for s in spec.arguments if s.kind in ("weight", "prepared")]


def _bound(slots: Sequence[Slot], dims: Mapping[str, int]) -> tuple[Slot, ...]:
    return tuple(replace(s, shape=static_shape(s.shape, dims)) for s in slots)


def weights_of(program: LoweredProgram) -> dict[str, Array]:
    """Return main's weight and prepared arguments."""
    prepared: dict[str, Array] = {}
    if program.prepare is not None:
        spec = program.prepare.spec
        arrays = [_array(program, s) for s in spec.arguments]
        module = program.prepare.module("cpu")
        results = computed(module, arrays) or _run(module, spec, arrays)
        prepared = dict(zip((s.name for s in spec.results), results, strict=True))
    return {
        f"{s.kind}/{s.name}": np.asarray(prepared[s.name])  # NumPy makes scalars
        if s.kind == "prepared"
        else _array(program, s)
        for s in leading_slots(program.main.spec)
    }


def _array(program: LoweredProgram, slot: Slot) -> Array:
    """Return a weight as its slot has it: float32 where the model has a half type."""
    array = as_numpy(program.weights[slot.name])
    return array.astype(slot.dtype, copy=False)


def _run(module: bytes, spec: FunctionSpec, arrays: Sequence[Array]) -> list[Array]:
    with jax.enable_x64(True):
        function = jax.jit(portable_callable(module, spec, "cpu"), keep_unused=True)
        lowered = function.lower(*static_shapes(spec.arguments, {}))
        executable = lowered.compile(compiler_options=dict(XLA_CPU_OPTIONS))
        return [np.asarray(y) for y in executable(*arrays)]
