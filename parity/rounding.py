"""Outputs behind a quantization: how far roundings to the other side may take them.

What lies between two integers goes to either of them where sums are in another order, and all
that follows goes with it; integer kernels are right to a step. How much that is in an output
depends on the model, so the model itself says it: it is run once more, with each value moved by
up to half a step before it is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode

from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.exporter.capture import Captured
from tpu_export.parity.eager import Run, Sample, run_eager
from tpu_export.parity.metrics import difference
from tpu_export.runtime.signature import RNG, Signature

# An error as large as the values themselves is one, however coarse a model is.
_MOST = 1.0
_CONTROL = {"associative_scan", "cond", "map_impl", "scan", "while_loop"}
_QUANTIZE = (
    "quantized_decomposed::quantize_per_",
    "torchao::quantize_affine",
    "aten::fake_quantize_per_",
    "aten::_fake_quantize_per_",
)


def rounding_limits(
    captured: Captured,
    signature: Signature,
    state: Mapping[str, torch.Tensor],
    samples: Sequence[Sample],
    run: Run,
) -> dict[str, float]:
    """Return the allowed max rel of what is behind a quantization.

    Args:
        captured: what is run.
        signature: after lowering, with its state.
        state: the model's own tensors of the slots; samples: the calls.
        run: what eager gave for them.

    Returns:
        by output as in a parity row, "state.NAME" and "input.NAME" too: the max rel between
        `run` and a run with moved values, 1 at most. Empty where nothing is quantized.
    """
    if not _quantizes(captured.program.graph_module):
        return {}
    with _seen(captured), _Moved(captured):
        moved = run_eager(captured, state, samples)
    limits: dict[str, float] = {}

    def hold(name: str, actual: Any, expected: Any) -> None:
        found = min(_MOST, difference(actual, expected).max_rel)
        limits[name] = max(limits.get(name, 0.0), found)

    for got, want in zip(moved.calls, run.calls, strict=True):
        for spec, a, e in zip(
            signature.outputs, got.outputs, want.outputs, strict=True
        ):
            hold(spec.name, a, e)
        for spec, a, e in zip(signature.inputs, got.inputs, want.inputs, strict=True):
            hold(f"input.{spec.name}", a, e)
    for name in moved.state.keys() & run.state.keys():
        hold(f"state.{name}", moved.state[name], run.state[name])
    return {name: limit for name, limit in limits.items() if limit}


def limits_on(
    captured: Captured, program: LoweredProgram, sample: Sample
) -> dict[str, float]:
    """Return `rounding_limits` on one call."""
    if not _quantizes(captured.program.graph_module):
        return {}
    signature = program.signature
    names = [slot.name for slot in signature.state if slot.name != RNG]
    state = {name: program.weights[name] for name in names}
    run = run_eager(captured, state, [sample])
    return rounding_limits(captured, signature, state, [sample], run)


def _quantizes(module: GraphModule) -> bool:
    """Tell whether a graph quantizes, and can be run with moved values.

    torch compiles loops and branches when it calls them, and cannot while values are moved.
    """
    targets = [node.target for node in module.graph.nodes]
    compiled = any(getattr(t, "__name__", "") in _CONTROL for t in targets)
    return not compiled and any(map(_is_quantization, targets))


def _is_quantization(target: Any) -> bool:
    is_op = isinstance(target, torch._ops.OpOverload)
    return is_op and target.name().startswith(_QUANTIZE)


def _seen(captured: Captured) -> AbstractContextManager[object]:
    """Let a dispatch mode see ops that autograd takes apart, as torchao's are."""
    nodes = captured.program.graph.nodes
    torchao = any(str(node.target).startswith("torchao.") for node in nodes)
    return torch._C._AutoDispatchBelowAutograd() if torchao else nullcontext()


class _Moved(TorchDispatchMode):
    """Moves what is quantized; weights stay, since everybody rounds them alike."""

    supports_higher_order_operators = True

    def __init__(self, captured: Captured) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        program = captured.program
        held = [*program.state_dict.values(), *program.constants.values()]
        tensors = (t for t in held if isinstance(t, torch.Tensor))
        self._weights = {t.untyped_storage()._cdata for t in tensors}
        self._generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if _is_quantization(func) and args[0].untyped_storage()._cdata not in (
            self._weights
        ):
            args = (self._moved(str(func), *args), *args[1:])
        return func(*args, **(kwargs or {}))

    def _moved(self, name: str, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        moves = torch.rand(x.shape, generator=self._generator) - 0.5
        moved: torch.Tensor = x + (moves * _steps(name, x, *rest)).to(x.dtype)
        return moved


def _steps(name: str, x: torch.Tensor, *rest: Any) -> Any:
    """Return what one step is of each element; broadcasts to x."""
    if "quantize_affine_float8" in name:  # a step of a float is as large as its values
        dtype = rest[1] if len(rest) > 1 else torch.float8_e4m3fn
        return x.abs() * torch.finfo(dtype).eps
    if "quantize_affine" in name:
        return _of_blocks(x, *rest[:2])
    scale = rest[0]
    if "per_channel_group" in name:
        return scale.repeat_interleave(x.shape[-1] // scale.shape[-1], -1)
    if "per_channel" in name:
        shape = [1] * x.ndim
        shape[rest[2]] = -1
        return scale.reshape(shape)
    return scale


def _of_blocks(x: torch.Tensor, blocks: Sequence[int], scale: Any) -> torch.Tensor:
    """Return the scale of each element, which it shares with its block."""
    counts = [size // block for size, block in zip(x.shape, blocks, strict=True)]
    steps: torch.Tensor = scale.reshape(counts)
    for axis, block in enumerate(blocks):
        steps = steps.repeat_interleave(block, axis)
    return steps
