"""One body for tables of modules: through the artifact, as a serving process runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import Captured, capture
from tpu_export.exporter.save import save
from tpu_export.exporter.stages import Lowered, lower
from tpu_export.parity.eager import flatten_like
from tpu_export.runtime.program import Program, load


@pytest.fixture
def run_module(tmp_path: Path) -> Callable[..., tuple[Captured, Lowered, Program]]:
    """run_module(module, args, kwargs=None, …) -> captured, lowered, loaded program."""

    def body(module: Any, args: Any, kwargs: Any = None, **options: Any) -> Any:
        captured = capture(module, args, kwargs or {}, **options)
        lowered = lower(captured)
        path = tmp_path / "m.tpuexe"
        with save(path, {captured.name: lowered.program}, {}) as writer:
            writer.commit()
        return captured, lowered, load(path, device="cpu")

    return body


@pytest.fixture
def check_module(run_module: Any) -> Callable[..., Lowered]:
    """Compare a module with its artifact: outputs, written inputs and buffers of each call.

    check_module(module, args, kwargs=None, more=(), calls=1, tol=None, dynamic_shapes=None):
    `more` are further (args) of other sizes; `calls` repeats each.
    """

    def body(
        module: Any, args: Any, kwargs: Any = None, *, more: Any = (), calls: int = 1,
        tol: Any = None, **options: Any,
    ) -> Lowered:  # fmt: skip
        captured, lowered, program = run_module(module, args, kwargs, **options)
        buffers = getattr(module, "named_buffers", dict)
        before = {name: buffer.clone() for name, buffer in dict(buffers()).items()}
        limits = {} if tol is None else {"rtol": tol[0], "atol": tol[1]}
        for given in [args, *more]:
            for _ in range(calls):
                theirs = pytree.tree_map_only(
                    torch.Tensor, torch.clone, (given, kwargs or {})
                )
                ours = pytree.tree_map_only(
                    torch.Tensor, lambda t: np.array(as_numpy(t)), theirs
                )
                with torch.no_grad():
                    want = module(*theirs[0], **theirs[1])
                got = program(*ours[0], **ours[1])
                _compare(captured, got, want, limits)
                leaves = zip(*map(pytree.tree_leaves, (ours, theirs)), strict=True)
                for mine, theirs_ in leaves:
                    if isinstance(theirs_, torch.Tensor):
                        torch.testing.assert_close(
                            to_torch(mine), theirs_, **limits, equal_nan=True
                        )
        own = dict(buffers())
        held = {own[n].untyped_storage()._cdata for n in program.state if n in own}
        for name, buffer in own.items():
            kept = program.state.get(name)  # what is no state must not have changed
            if kept is None and buffer.untyped_storage()._cdata in held:
                continue  # a view of what is state
            ours = before[name] if kept is None else to_torch(kept)
            torch.testing.assert_close(ours, buffer, **limits, equal_nan=True)
        return lowered

    return body


@pytest.fixture
def check_sizes(check_module: Any) -> Callable[..., Lowered]:
    """check_sizes(model, dynamic_shapes, call, …): one capture, right at the shapes of each call.

    A call is a shape for each input; a lone shape, and a lone entry of dynamic_shapes, stand
    for a model with one input.
    """

    def body(model: Any, dynamic: Any, *calls: Any) -> Lowered:
        torch.manual_seed(0)
        shapes = [call if isinstance(call[0], tuple) else (call,) for call in calls]
        first, *more = [tuple(map(torch.randn, call)) for call in shapes]
        dynamic = dynamic if isinstance(dynamic, tuple) else (dynamic,)
        return check_module(
            model, first, more=more, dynamic_shapes=dynamic, tol=(1e-5, 1e-5)
        )

    return body


def _compare(captured: Captured, got: Any, want: Any, limits: Any) -> None:
    tree = captured.signature.output_tree
    pairs = zip(flatten_like(tree, got), flatten_like(tree, want), strict=True)
    for mine, theirs in pairs:
        expected = theirs if isinstance(theirs, torch.Tensor) else torch.tensor(theirs)
        torch.testing.assert_close(
            to_torch(mine), expected.contiguous(), equal_nan=True, **limits
        )


def to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
