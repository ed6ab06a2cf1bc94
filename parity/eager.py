"""The reference rung: the user's own model in torch eager, left as it was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.restored import restored
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.signature import Tree

Array = np.ndarray[Any, np.dtype[Any]]


class EagerFailedError(TpuExportError):
    """The user's own model raises on the inputs that parity runs."""

    code = "TPX-0704"


@dataclass(frozen=True)
class Sample:
    """One call: where its inputs come from, and forward()'s torch arguments."""

    origin: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def clone(self) -> Sample:
        """Return a copy whose tensors may be written to."""
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda t: t.detach().clone(), (self.args, dict(self.kwargs))
        )
        return Sample(self.origin, args, kwargs)


@dataclass(frozen=True)
class Call:
    """What one call gave: flat outputs, and the inputs after it, in leaf order."""

    outputs: tuple[Array, ...]
    inputs: tuple[Array, ...]


@dataclass(frozen=True)
class Run:
    """Calls in order from the initial state, and the state slots after the last.

    Of eager, also every other buffer that a call changed.
    """

    calls: tuple[Call, ...]
    state: Mapping[str, Array]


def run_eager(
    captured: Captured, state: Mapping[str, torch.Tensor], samples: Sequence[Sample]
) -> Run:
    """Call the model on each sample in turn; its buffers are put back afterwards.

    Args:
        captured: the signature to run; its `eager` is called.
        state: the model's own tensors of the state slots, by name.
        samples: inputs, used in order.

    Raises:
        EagerFailedError: the model raises.
    """
    calls = []
    held = {t.untyped_storage()._cdata for t in state.values()}
    buffers = {
        name: buffer
        for name, buffer in _buffers(captured).items()
        if buffer.untyped_storage()._cdata not in held  # else a view of what is state
    }
    watched = {**buffers, **state}
    with restored(captured.eager, watched) as initial, torch.no_grad():
        for sample in samples:
            own = sample.clone()
            result = _called(captured, own)
            outputs = flatten_like(captured.signature.output_tree, result)
            leaves = pytree.tree_leaves((own.args, own.kwargs))
            inputs = [as_array(x) for x in leaves if isinstance(x, torch.Tensor)]
            calls.append(Call(tuple(map(as_array, outputs)), tuple(inputs)))
        after = {
            name: as_array(_current(captured, name, tensor))
            for name, tensor in watched.items()
        }
        kept = {
            name: array
            for name, array in after.items()
            if name in state or not same_bits(array, as_array(initial[name]))
        }
    return Run(tuple(calls), kept)


def _called(captured: Captured, sample: Sample) -> Any:
    try:
        return captured.eager(*sample.args, **sample.kwargs)
    except TpuExportError:
        raise
    except Exception as error:  # whatever the user's model raises
        reason = str(error).strip().splitlines() or [""]
        raise EagerFailedError(
            f"torch eager itself fails on the inputs of {captured.name!r} that parity runs "
            f"({sample.origin}): {type(error).__name__}: {reason[0]}",
            hint="correct the model, or its example inputs"
            if sample.origin == "example"
            else "give get_inputs() a `seed` parameter and draw inputs that the model takes, "
            "or export with --no-parity",
        ) from error


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays are equal, NaN and signs of zero too."""
    return (a.shape, a.dtype) == (b.shape, b.dtype) and a.tobytes() == b.tobytes()


def _buffers(captured: Captured) -> dict[str, torch.Tensor]:
    module = captured.eager
    return dict(module.named_buffers()) if isinstance(module, torch.nn.Module) else {}


def as_array(value: object) -> Array:
    """Return a copy of a tensor (or number) of a result as an array."""
    if isinstance(value, torch.Tensor):
        return np.array(as_numpy(value))
    return np.asarray(value)


def flatten_like(tree: Tree, result: Any) -> list[Any]:
    """Return the leaves of a result that `tree` numbers, in order."""
    match tree:
        case {"leaf": _}:
            return [result]
        case {"const": _}:
            return []
        case {"list": list(children)} | {"tuple": list(children)}:
            pairs = list(zip(children, result, strict=True))
        case {"dict": list(items)}:
            pairs = [(child, result[key]) for key, child in items]
        case {"fields": list(items)}:
            pairs = [
                (child, _field(result, key, i)) for i, (key, child) in enumerate(items)
            ]
        case _:
            message = f"not a tree: {tree}"
            raise AssertionError(message)
    return [leaf for child, value in pairs for leaf in flatten_like(child, value)]


def _field(record: Any, key: Any, index: int) -> Any:
    """Return a field of a record; one without names counts its pytree children."""
    if isinstance(key, str) and hasattr(record, key):
        return getattr(record, key)
    if isinstance(record, Mapping):
        return record[key]
    return pytree.tree_flatten(record, is_leaf=lambda x: x is not record)[0][index]


def _current(captured: Captured, name: str, tensor: torch.Tensor) -> torch.Tensor:
    owner = getattr(captured.eager, "get_buffer", None)
    if owner is None:
        return tensor
    try:
        found = owner(name)
    except AttributeError:
        return tensor
    return found if isinstance(found, torch.Tensor) else tensor
