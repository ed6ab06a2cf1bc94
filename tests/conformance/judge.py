"""One module on one set of inputs: captured, lowered, written, loaded, called, compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import capture
from tpu_export.exporter.save import save
from tpu_export.exporter.stages import lower
from tpu_export.parity.eager import flatten_like
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.program import load

Status: TypeAlias = Literal[
    "pass",  # equal within tolerance
    "drawn",  # a random op: shape and dtype are right, values are the seed's
    "wrong",  # it ran and gave something else: the one thing that must not happen
    "refused",  # a coded error of ours says why not
    "failed",  # any other failure after torch.export took it
    "not exportable",  # torch.export refuses it
    "not eager",  # torch itself refuses the sample
]
Reference: TypeAlias = Callable[[Sequence[Any]], Sequence[torch.Tensor]]

# (rtol, atol) against eager of the same dtype. float32: XLA's polynomial approximations and
# its order of summation differ from torch's in the last places; halves round at 2^-8, 2^-11.
TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
    torch.float32: (1e-4, 2e-5),
    torch.complex64: (1e-4, 2e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
}
WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
# An output that is not within tolerance of eager passes when it is about as near to the
# result in float64 as eager is: eager itself is not exact.
EAGER_ERRORS = 2.0


@dataclass(frozen=True)
class Outcome:
    """What became of one sample, why when it is not a pass, and the ops of its graph."""

    status: Status
    reason: str = ""
    ops: frozenset[str] = frozenset()


def judge(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    canonical: Reference | None = None,
) -> Outcome:
    """Compare a module with its artifact on the CPU.

    Args:
        module: called under no_grad; its buffers may change.
        args: of forward(); tensors are inputs.
        kwargs: of forward().
        canonical: outputs and then inputs -> what of them is unique, for results such as
            eigenvectors, of which several are right.
    """
    kwargs = dict(kwargs or {})
    try:
        want, drawn = _eager(module, args, kwargs)
    except Exception as error:
        return Outcome("not eager", _line(error))
    ops: set[str] = set()
    try:
        got = _through_artifact(module, args, kwargs, ops)
    except TpuExportError as error:
        if error.code.startswith("TPX-01") and not _exports(module, args, kwargs):
            return Outcome("not exportable", _line(error))
        return Outcome("refused", f"{error.code} {_line(error)}")
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {_line(error)}")
    if canonical is not None and len(got) == len(want):
        want, got = list(canonical(want)), list(canonical(got))
    problem = _mismatch(got, want)
    if problem:
        return Outcome("wrong", problem)
    if drawn:
        return Outcome("drawn", ops=frozenset(ops))
    problem = _difference(got, want)
    if (
        problem
        and canonical is None
        and _draws(ops)
        and _eager(module, args, kwargs, 9)[1]
    ):
        return Outcome("drawn", ops=frozenset(ops))
    if problem and canonical is None:
        exact = _exact(module, args, kwargs)
        if exact is not None and not _farther(got, want, exact):
            problem = ""
    return Outcome("wrong", problem) if problem else Outcome("pass", "", frozenset(ops))


def clone(tree: Any) -> Any:
    """Return a copy whose tensors may be written to, strides kept."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), tree)


def _draws(ops: Iterable[str]) -> bool:
    """Whether the graph holds an op that torch says takes from the generator."""
    for name in ops:
        namespace, packet, overload = name.split(".")
        op = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        if torch.Tag.nondeterministic_seeded in op.tags:
            return True
    return False


def _eager(
    module: Any, args: Any, kwargs: Any, seeds: int = 2
) -> tuple[list[torch.Tensor], bool]:
    """Return the flat outputs, and whether they depend on the seed."""
    runs = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        own_args, own_kwargs = clone((args, kwargs))
        with torch.no_grad():
            result = module(*own_args, **own_kwargs)
        leaves = pytree.tree_leaves((result, own_args, own_kwargs))
        tensors = [_tensor(x) for x in leaves if x is not None]
        runs.append([t.detach().clone() for t in tensors])
    same = all(
        torch.equal(_bits(a), _bits(b))
        for other in runs[1:]
        for a, b in zip(runs[0], other, strict=True)
    )
    return runs[0], not same


def _tensor(x: Any) -> torch.Tensor:
    # torch's default would round a Python number.
    return (
        torch.tensor(x, dtype=torch.float64)
        if isinstance(x, float)
        else torch.as_tensor(x)
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(tensor) if tensor.is_floating_point() else tensor


def _through_artifact(
    module: Any, args: Any, kwargs: Any, ops: set[str]
) -> list[torch.Tensor]:
    args, kwargs = clone((args, kwargs))
    captured = capture(module, args, kwargs)
    ops |= {
        str(node.target)
        for part in captured.program.graph_module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    }
    lowered = lower(captured)
    arrays = pytree.tree_map_only(
        torch.Tensor, lambda t: np.array(as_numpy(t)), (args, kwargs)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.tpuexe"
        with save(path, {captured.name: lowered.program}, {}) as writer:
            writer.commit()
        with load(path, device="cpu") as program:
            result = program(*arrays[0], **arrays[1])
    outputs = flatten_like(captured.signature.output_tree, result)
    inputs = [x for x in pytree.tree_leaves(arrays) if x is not None]
    return [_as_torch(x) for x in (*outputs, *inputs)]


def _as_torch(x: Any) -> torch.Tensor:
    array = np.asarray(x)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def _exports(module: Any, args: Any, kwargs: Any) -> bool:
    args, kwargs = clone((args, kwargs))
    try:
        torch.export.export(module, args, kwargs, strict=False)
    except Exception:
        return False
    return True


def _mismatch(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> str:
    if len(got) != len(want):
        return f"{len(got)} outputs, torch gives {len(want)}"
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return (
                f"output {i} is {ours.dtype}{list(ours.shape)}, "
                f"torch gives {theirs.dtype}{list(theirs.shape)}"
            )
    return ""


def _difference(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> str:
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        rtol, atol = TOLERANCES.get(theirs.dtype, (0.0, 0.0))
        close = torch.isclose(
            ours, theirs.contiguous(), rtol=rtol, atol=atol, equal_nan=True
        )
        if not bool(close.all()):
            at = tuple((~close).nonzero()[0].tolist())
            return (
                f"output {i}{list(at) if at else ''}: {ours[at].item()!r}, "
                f"torch {theirs[at].item()!r} ({int((~close).sum())} of {close.numel()})"
            )
    return ""


def _exact(module: Any, args: Any, kwargs: Any) -> list[torch.Tensor] | None:
    """Return the outputs computed in float64, or None when torch cannot."""

    def widen(t: torch.Tensor) -> torch.Tensor:
        return t.to(WIDER.get(t.dtype, t.dtype))

    try:
        wide = pytree.tree_map_only(torch.Tensor, widen, (args, kwargs))
        return _eager(module, *wide)[0]
    except Exception:
        return None


def _farther(
    got: Sequence[torch.Tensor],
    want: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
) -> bool:
    """Say whether any output is clearly farther from the exact one than eager's is."""
    for ours, theirs, true in zip(got, want, exact, strict=True):
        rtol, atol = TOLERANCES.get(theirs.dtype, (0.0, 0.0))
        if rtol == 0.0:
            if not torch.equal(ours, theirs):
                return True
            continue
        if true.dtype != WIDER.get(theirs.dtype, theirs.dtype):
            return True
        mine, eager = ours.to(true.dtype), theirs.to(true.dtype)
        true = true.to(theirs.dtype).to(true.dtype)  # what overflows there is infinite
        finite = torch.isfinite(true)
        infinite = mine[~finite]
        if not any(
            torch.allclose(infinite, x[~finite], equal_nan=True) for x in (eager, true)
        ):
            return True
        both = finite & torch.isfinite(eager)
        allowed = EAGER_ERRORS * (eager - true)[both].abs().max() if both.any() else 0.0
        error, scale = (mine - true)[finite].abs(), true[finite].abs()
        if not bool((error <= allowed + atol + rtol * scale).all()):
            return True
    return False


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
