"""Sizes that the data of a call decides: counted before main runs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.executables import Flat
from tpu_export.runtime.expressions import constraint_names, holds
from tpu_export.runtime.manifest import CountFunction, Program
from tpu_export.runtime.signature import Signature, Slot
from tpu_export.runtime.weights import Weights

MAX_SIZES = 32  # compiled sets of sizes kept per function
Compile: TypeAlias = Callable[[CountFunction, Mapping[str, int]], Flat]
Put: TypeAlias = Callable[[Any], Any]


class CountError(TpuExportError):
    """The data of a call gives a size that the model was not captured for."""

    code = "TPX-0511"


class Counts:
    """The functions that count, compiled for each set of sizes that comes up."""

    def __init__(self, program: Program, compile_: Compile, put: Put) -> None:
        self._functions = program.counts
        self._signature = program.signature
        self._compile = compile_
        self._put = put
        self._lock = threading.Lock()
        self._codes: OrderedDict[tuple[Any, ...], Flat] = OrderedDict()
        self._weights: dict[str, Any] = {}

    def forget(self) -> None:
        """Drop what depends on the weights' values."""
        with self._lock:
            self._weights.clear()

    def of(
        self, weights: Weights, dims: Mapping[str, int], rest: Sequence[Any]
    ) -> tuple[Mapping[str, int], list[Any]]:
        """Return every size of a call, and main's arguments that say the counted ones.

        Args:
            weights: of the artifact.
            dims: sizes that follow from the inputs.
            rest: state and input arrays, as main takes them.

        Raises:
            CountError: a size is out of its range, or breaks a constraint.
        """
        signature = self._signature
        if not signature.counted:
            return dims, []
        specs = [*(("state", s) for s in signature.state)]
        specs += [("input", s) for s in signature.inputs]
        given = {(k, s.name): array for (k, s), array in zip(specs, rest, strict=True)}
        known = dict(dims)
        for place, function in enumerate(self._functions):
            arrays = [
                self._argument(slot, given, known, weights)
                for slot in function.spec.arguments
            ]
            values = self._code(place, function, known)(arrays)
            names = [slot.name for slot in function.spec.results]
            known |= {n: int(v) for n, v in zip(names, values, strict=True)}
            _check(signature, known)
        sizes = [self._size(known[dim.name]) for dim in signature.counted]
        return known, sizes

    def _argument(
        self,
        slot: Slot,
        given: Mapping[tuple[str, str], Any],
        known: Mapping[str, int],
        weights: Weights,
    ) -> Any:
        if slot.kind == "size":
            return self._size(known[slot.name])
        if slot.kind == "weight":
            with self._lock:
                if slot.name not in self._weights:
                    self._weights[slot.name] = self._put(weights[slot.name])
                return self._weights[slot.name]
        return given[slot.kind, slot.name]

    def _size(self, count: int) -> Any:
        return self._put(np.zeros(count, np.bool_))

    def _code(
        self, place: int, function: CountFunction, known: Mapping[str, int]
    ) -> Flat:
        key = (place, *sorted(known.items()))
        with self._lock:
            if key not in self._codes:
                self._codes[key] = self._compile(function, known)
                while len(self._codes) > MAX_SIZES:
                    self._codes.popitem(last=False)
            self._codes.move_to_end(key)
            code = self._codes[key]
        return lambda arrays: list(jax.block_until_ready(code(arrays)))


def _check(signature: Signature, known: Mapping[str, int]) -> None:
    problems = [
        f"{dim.name} is {known[dim.name]}, outside {dim.minimum} … "
        f"{'any' if dim.maximum is None else dim.maximum}"
        for dim in signature.counted
        if dim.name in known
        and not dim.minimum
        <= known[dim.name]
        <= (known[dim.name] if dim.maximum is None else dim.maximum)
    ]
    counted = {dim.name for dim in signature.counted}
    for constraint in signature.constraints:
        names = constraint_names(constraint)
        if names & counted and names <= known.keys() and not holds(constraint, known):
            given = ", ".join(f"{name} = {known[name]}" for name in sorted(names))
            problems.append(f"the model was captured for {constraint}, given {given}")
    if problems:
        raise CountError(
            f"{signature.name}: a size that the data decides does not fit: "
            f"{'; '.join(problems)}",
            hint="look at the values that the size comes from; torch raises here too, but for "
            "a few ops that are not compiled for a selection of nothing",
        )
