"""The rungs that an export stands on: the artifact as loaded, and LiteRT's engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.parity.eager import Array, Call, Run, Sample, flatten_like
from tpu_export.runtime.program import Program
from tpu_export.runtime.signature import Signature


@dataclass(frozen=True)
class ProgramRung:
    """A loaded .tpuexe, called as a serving process calls it: numpy in, numpy out."""

    program: Program
    engine: str = ""

    @property
    def name(self) -> str:
        """The device that really computes, and the engine where it is LiteRT."""
        return f"tpuexe on {self.program.device}{self.engine and f' in {self.engine}'}"

    def run(self, signature: Signature, samples: Sequence[Sample]) -> Run:
        """Call the signature from its initial state."""
        self.program.reset_state()
        calls = []
        for sample in samples:
            args, kwargs = array_arguments(sample)
            result = self.program[signature.name](*args, **kwargs)
            outputs = flatten_like(signature.output_tree, result)
            inputs = [x for x in pytree.tree_leaves((args, kwargs)) if _is_array(x)]
            calls.append(Call(tuple(map(np.asarray, outputs)), tuple(inputs)))
        state = {slot.name: self.program.state[slot.name] for slot in signature.state}
        return Run(tuple(calls), state)


def own_array(tensor: torch.Tensor) -> Array:
    """Return a writable copy of a tensor's values."""
    return np.array(as_numpy(tensor))


def array_arguments(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a sample's arguments with arrays of their own in the place of tensors."""
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, own_array, (sample.args, dict(sample.kwargs))
    )
    return args, kwargs


def flat_inputs(signature: Signature, sample: Sample) -> dict[str, Array]:
    """Return the sample's tensors under the names of the signature's inputs."""
    leaves = pytree.tree_leaves((sample.args, dict(sample.kwargs)))
    tensors = [own_array(x) for x in leaves if isinstance(x, torch.Tensor)]
    names = [spec.name for spec in signature.inputs]
    return dict(zip(names, tensors, strict=True))


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def with_state(
    inputs: Mapping[str, Array], state: Mapping[str, Array]
) -> dict[str, Array]:
    """Add the state slots as the explicit inputs that LiteRT takes them as."""
    return {**inputs, **{f"state.{name}": value for name, value in state.items()}}
