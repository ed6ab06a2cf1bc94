"""torch.export, called so that as many models as possible are captured.

Private switches of torch are used in this file, transforms.py and symbolic_kernels.py only.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
)
from functools import partial
from typing import TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export._patches import (
    register_gru_while_loop_decomposition,
    register_lstm_while_loop_decomposition,
)
from torch.export._trace import _export as export_after_dispatch
from torch.fx import proxy
from torch.fx.experimental import _config

from tpu_export.exporter.assigned import (
    as_buffers,
    refuse_lost,
    watched,
    written_buffers,
)
from tpu_export.exporter.entry import code, register_dataclasses
from tpu_export.exporter.least_squares import KERNELS as LEAST_SQUARES
from tpu_export.exporter.least_squares import check_residuals
from tpu_export.exporter.refusals import NotExportableError, explain
from tpu_export.exporter.symbolic_kernels import SYMBOLIC, forgotten, kernels
from tpu_export.exporter.transforms import TRANSFORM, same_transforms, whole
from tpu_export.runtime.errors import TpuExportError

Shapes: TypeAlias = dict[str, object] | tuple[object, ...]
Example: TypeAlias = tuple[tuple[object, ...], dict[str, object]]


def trace(
    module: torch.nn.Module,
    example: Example,
    shapes: Shapes | None,
    *,
    strict: bool,
) -> ExportedProgram:
    """Export a module, or say why torch refuses.

    Where torch refuses for a reason that another mode of its own has not, a second attempt
    uses that mode.

    Raises:
        NotExportableError: torch.export refuses.
        DimRangeError: the model does not hold for all sizes asked for.
    """
    if torch.is_autocast_enabled(
        "cpu"
    ):  # the graph would have its dtypes, not its casts
        raise NotExportableError(
            "torch.autocast is on around the capture",
            hint="put `with torch.autocast(...)` inside forward(), or capture outside of it",
        )
    try:
        return _export(module, example, shapes, strict)
    except TpuExportError:
        raise
    except Exception as error:  # torch documents no set of errors
        lost = TRANSFORM.search(str(error)) is not None
        mode = nullcontext() if lost else _other_mode(str(error))
        if mode is None:
            raise _explained(error, module, example) from error
        first = error
    try:
        with mode:
            return _export(module, example, shapes, strict, pre_dispatch=not lost)
    except Exception:
        raise _explained(first, module, example) from first


def _explained(
    error: Exception, module: torch.nn.Module, example: Example
) -> TpuExportError:
    with _same_modes():
        return explain(error, module, *example)


def _other_mode(refusal: str) -> AbstractContextManager[object] | None:
    if "Constraints violated" in refusal:
        # It may have read too much into the example: an axis of size 1 is not a constant.
        oblivious: AbstractContextManager[object] = _config.patch(  # type: ignore[attr-defined]
            backed_size_oblivious=True
        )
        return oblivious
    if re.search(
        "during higher order op|call_function (cond|scan|while_loop)", refusal
    ):
        # Without gradients, bodies may write to what is around them and carry integers.
        return torch.no_grad()
    return None


def _export(
    module: torch.nn.Module,
    example: Example,
    shapes: Shapes | None,
    strict: bool,
    *,
    pre_dispatch: bool = True,
) -> ExportedProgram:
    """Call torch.export; `pre_dispatch` keeps composite ops, and loses some derivatives."""
    args, kwargs = example
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(_same_modes())
        stack.enter_context(same_transforms())
        stack.enter_context(_with_lines(module))
        stack.enter_context(kernels(LEAST_SQUARES))
        if shapes is not None:
            # Bodies of loops and branches that an earlier capture compiled hold for its sizes.
            torch._dynamo.reset()
        if shapes is not None and not strict:
            stack.enter_context(_whole_recurrences(module))
            stack.enter_context(kernels(SYMBOLIC))
        export = partial(
            torch.export.export if pre_dispatch else export_after_dispatch,
            module, args, kwargs, dynamic_shapes=shapes, strict=strict,
        )  # fmt: skip
        if strict:  # torch traces hooks too
            program = export()
            refuse_lost(module, args, kwargs, program)
            return check_residuals(whole(program))
        stack.enter_context(_registered_outputs(module))
        stack.enter_context(written_buffers(module))
        assigned = stack.enter_context(watched(module))
        program = export()
        if lost := assigned.lost(program):
            with as_buffers(module, lost):
                program = export()
        return check_residuals(whole(program))


@contextmanager
def _whole_recurrences(module: torch.nn.Module) -> Iterator[None]:
    """Keep LSTM and GRU as one op each, whatever the number of steps.

    Torch's own kernels unroll over time, which makes the time axis static.
    """
    if not any(isinstance(m, torch.nn.RNNBase) for m in module.modules()):
        yield
        return
    with (
        forgotten([torch.ops.aten.lstm.input, torch.ops.aten.gru.input]),
        register_lstm_while_loop_decomposition(),
        register_gru_while_loop_decomposition(),
    ):
        yield


@contextmanager
def _with_lines(module: torch.nn.Module) -> Iterator[None]:
    """Let nodes have the lines of a model's function that has another name than forward.

    Torch notes the lines of functions of that name, and of those that are named here.
    """
    function = code(module)
    noted = (function.co_filename, function.co_name)
    new = noted not in proxy._STACK_TRACE_ANCHORS
    proxy._STACK_TRACE_ANCHORS.add(noted)
    try:
        yield
    finally:
        if new:
            proxy._STACK_TRACE_ANCHORS.discard(noted)


@contextmanager
def _registered_outputs(module: torch.nn.Module) -> Iterator[None]:
    """Register dataclasses that forward() returns before torch flattens its result."""

    def hook(_: torch.nn.Module, __: object, result: object) -> None:
        register_dataclasses(result)

    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _same_modes() -> Iterator[None]:
    """Leave the process's modes as they were: forward() may switch one, and then fail."""
    gradients = torch.is_grad_enabled()
    casts = {
        device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    }
    try:
        yield
    finally:
        torch.set_grad_enabled(gradients)
        for device, (enabled, dtype) in casts.items():
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's words about its own internals off the user's terminal.

    What the model itself writes to stderr is shown once the block ends.
    """
    logger, written, graph = logging.getLogger("torch"), io.StringIO(), ""
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(written):
            warnings.filterwarnings("ignore", module="torch|contextlib|copyreg")
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", message="The tensor attributes? self")
            yield
    except Exception as error:
        graph = str(getattr(error, "partial_fx_graph", ""))
        raise
    finally:
        logger.setLevel(level)
        text = (
            written.getvalue().replace(f"{graph}\n", "")
            if graph
            else written.getvalue()
        )
        sys.stderr.write(text)
