"""What the ops of a float and a quantized .tflite compute, whole and cut apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tpu_export.converters.litert.graph import Graph, read_graph
from tpu_export.converters.litert.isolate import (
    computed,
    isolated,
    tapped,
    tensor_values,
)
from tpu_export.parity.snr import Array, bulk_snr
from tpu_export.runtime.errors import TpuExportError

Values: TypeAlias = Mapping[int, Array]
Sample: TypeAlias = Mapping[str, Array]
Measure: TypeAlias = Callable[[Array, Array], float]


class LayersDifferError(TpuExportError):
    """Two .tflite files do not hold the same ops, so their layers cannot be compared."""

    code = "TPX-0620"


@dataclass(frozen=True)
class Compared:
    """Values by tensor of the float file, one mapping a sample, beside what they should be."""

    found: Sequence[Values]
    expected: Sequence[Values]

    def snr(self, tensors: Sequence[int], measure: Measure = bulk_snr) -> float:
        """Return the decibels of the worst of some tensors, over all samples."""
        return min(
            measure(_all(self.found, t), _all(self.expected, t)) for t in tensors
        )


def _all(values: Sequence[Values], tensor: int) -> Array:
    return np.concatenate([v[tensor].reshape(-1) for v in values])


@dataclass(frozen=True)
class Pair:
    """A float file and what was quantized from it, op by op.

    `plain.nodes[order[i]]` and `integer.nodes[twin_order[i]]` are the same op. `known` is
    the `truth` of another pair with the same float file and samples.
    """

    plain: Graph
    integer: Graph
    samples: Sequence[Sample]
    known: Sequence[Values] | None = None

    @cached_property
    def order(self) -> list[int]:
        """Positions of the ops of the float file."""
        return computed(self.plain)

    @cached_property
    def twin_order(self) -> list[int]:
        """Positions of the ops of the quantized file, less its casts."""
        return computed(self.integer)

    @cached_property
    def twins(self) -> dict[int, int]:
        """Tensors of the quantized file, by those of the float one."""
        found = {t: self.integer.inputs[name] for name, t in self.plain.inputs.items()}
        for i, j in zip(self.order, self.twin_order, strict=True):
            a, b = self.plain.nodes[i].outputs, self.integer.nodes[j].outputs
            found.update(zip(a, b, strict=True))
        return found

    @cached_property
    def truth(self) -> Sequence[Values]:
        """What every op computes in float, and the inputs."""
        if self.known is not None:
            return self.known
        runs = tensor_values(tapped(self.plain), self.samples)
        inputs = self.plain.inputs.items()
        return [
            {**run, **{t: np.asarray(s[name]) for name, t in inputs}}
            for run, s in zip(runs, self.samples, strict=True)
        ]

    @cached_property
    def whole(self) -> Compared:
        """What the quantized file computes as it is."""
        return Compared(
            self._integers(tapped(self.integer), [{}] * len(self.samples)), self.truth
        )

    def given(self) -> Compared:
        """Hold the inputs as the quantized file does."""
        return Compared([self._held(values) for values in self.truth], self.truth)

    def apart(self, groups: Sequence[int]) -> Compared:
        """Run groups of ops of the quantized file, each on the float file's values.

        What a value loses as the integers that its maker leaves is the maker's loss: the float
        ops that are compared with take it as these integers hold it, too.
        """
        held = [self._held(values) for values in self.truth]
        graph, fed = isolated(self.integer, groups)
        plain, plain_fed = isolated(self.plain, groups)
        names = {q: f for f, q in self.twins.items()}
        found = self._integers(
            graph, [{f"f{t}": h[names[t]] for t in fed} for h in held]
        )
        calls = [
            {**sample, **{f"f{t}": h[t] for t in plain_fed}}
            for sample, h in zip(self.samples, held, strict=True)
        ]
        return Compared(found, tensor_values(plain, calls))

    def calls(self) -> list[dict[str, Array]]:
        """Return the samples in the dtypes that the quantized file takes."""
        scales = {n: self.integer.scale_of(t) for n, t in self.integer.inputs.items()}
        return [
            {n: s.quantized(own[n]) if s else own[n] for n, s in scales.items()}
            for own in self.samples
        ]

    def _held(self, values: Values) -> dict[int, Array]:
        """Return values as the quantized file's tensors hold them."""
        scales = {t: self.integer.scale_of(self.twins[t]) for t in values}
        return {
            t: s.value(s.quantized(values[t]))
            if s and self.plain.is_float(t)
            else values[t]
            for t, s in scales.items()
        }

    def _integers(self, graph: Graph, fed: Sequence[Sample]) -> list[Values]:
        """Run a form of the quantized file; returns numbers by the float file's tensors."""
        calls = [{**own, **f} for own, f in zip(self.calls(), fed, strict=True)]
        made = [t for i in self.order for t in self.plain.nodes[i].outputs]
        found: list[Values] = []
        for values in tensor_values(graph, calls):
            twins = {t: values[self.twins[t]] for t in made}
            scale = {t: self.integer.scale_of(self.twins[t]) for t in made}
            found.append(
                {
                    t: s.value(v) if (s := scale[t]) and self.plain.is_float(t) else v
                    for t, v in twins.items()
                }
            )
        return found


def read_pair(
    plain: Path,
    integer: Path,
    signature: str,
    samples: Sequence[Sample],
    known: Sequence[Values] | None = None,
) -> Pair:
    """Read two files.

    Raises:
        LayersDifferError: they do not hold the same ops.
    """
    pair = Pair(
        read_graph(plain, signature), read_graph(integer, signature), samples, known
    )
    ops = [pair.plain.nodes[i].name for i in pair.order]
    others = [pair.integer.nodes[i].name for i in pair.twin_order]
    if ops != others:
        same = sum(1 for _ in _common(ops, others))
        raise LayersDifferError(
            f"{integer.name} has other ops than {plain.name} from op {same} on: "
            f"{len(others)} and {len(ops)} of them",
            hint="give the float file that the quantized one was made from",
        )
    return pair


def _common(a: Sequence[str], b: Sequence[str]) -> list[str]:
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return list(a[:count])
