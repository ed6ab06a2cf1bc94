"""What a rule gave, compared with what torch recorded for the node."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import torch
from jax import export
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.utils import _pytree as pytree

from tpu_export.converters.stablehlo.mutating import called_op
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.registry import Own
from tpu_export.runtime.errors import TpuExportError, counted, with_article

# Its kernel keeps statistics in the dtype they are stored in; torch's tracing says float32.
_ROUNDS_STATISTICS = frozenset(
    {torch.ops.aten._native_batch_norm_legit_functional.default}
)
_WIDE = frozenset({"int64", "uint64", "float64", "complex128"})


class LoweringBugError(TpuExportError):
    """A rule gave another shape or dtype than torch says."""

    code = "TPX-0202"


class OwnRuleRaisedError(Exception):
    """A rule of the user raised; what it raised is the cause."""

    def __init__(self, own: Own) -> None:
        super().__init__(str(own))
        self.own = own


def guarded(node: Node, own: Own) -> Callable[..., Any]:
    """Return a rule of the user that says whose fault it is, and gives what was asked.

    It is traced as JAX traces by default, without x64, unless the op has 64-bit tensors: Mosaic
    refuses Pallas kernels whose index maps are of int64.

    Raises:
        OwnRuleRaisedError: it raised.
        LoweringBugError: it gave another structure, shape or dtype than the op.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        wide = _is_wide(args, kwargs, node.meta.get("val"))
        try:
            with jax.enable_x64(wide):
                result = own.rule(*args, **kwargs)
        except TpuExportError:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code does
            raise OwnRuleRaisedError(own) from error
        _check_structure(node, own, result)
        check(node, result, (args, kwargs), own)
        return result

    return call


def check(node: Node, result: Any, given: Any, own: Own | None = None) -> None:
    """Compare shape and dtype with what torch recorded of the results that are read.

    Of others torch is not sure itself: embedding_bag's depend on whether it needs gradients.

    Args:
        node: of the graph.
        result: of its rule.
        given: the rule's arguments.
        own: the rule, where it is the user's.
    """
    expected = node.meta.get("val")
    pairs = (
        [(expected, result)]
        if isinstance(expected, torch.Tensor)
        else list(zip(expected, result, strict=False))
        if isinstance(expected, tuple | list) and isinstance(result, tuple | list)
        else []
    )
    for i, (want, got) in enumerate(pairs):
        if len(pairs) > 1 and not is_read(node, i):
            continue
        if not isinstance(want, torch.Tensor) or got is None:
            continue
        rounded = i > 0 and node.target in _ROUNDS_STATISTICS
        if not _same_shape(got, want, given) or not (
            rounded or getattr(got, "dtype", None) == DTYPES[want.dtype]
        ):
            raise _wrong(node, own, _said(got), _said(want))


def _is_wide(*values: Any) -> bool:
    return any(
        str(getattr(x, "dtype", "")).removeprefix("torch.") in _WIDE
        for x in pytree.tree_leaves(values)
    )


def _check_structure(node: Node, own: Own, result: Any) -> None:
    """Hold a rule of the user to an array for a tensor, and a tuple for several."""
    if any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves(result)):
        raise LoweringBugError(
            f"your rule for {called_op(node)} ({own}) returned a torch.Tensor",
            hint="a rule takes JAX arrays and returns JAX arrays: write it with jax.numpy",
        )
    expected = node.meta.get("val")
    wants, gots = [expected], [result]
    if isinstance(expected, tuple | list):
        wants, count = list(expected), counted(len(expected), "result")
        if not isinstance(result, tuple | list):
            raise _wrong(node, own, _said(result), count)
        if len(result) != len(expected):
            raise _wrong(node, own, counted(len(result), "result"), count)
        gots = list(result)
    for want, got in zip(wants, gots, strict=True):
        if isinstance(want, torch.Tensor) != hasattr(got, "dtype"):
            raise _wrong(node, own, _said(got), _said(want))


def _is_dynamic(given: Any) -> bool:
    """Whether the arguments have sizes that a call decides: not those of debug mode."""
    sizes = (
        size for x in pytree.tree_leaves(given) for size in getattr(x, "shape", (x,))
    )
    return any(export.is_symbolic_dim(size) for size in sizes)


def _same_shape(got: Any, want: torch.Tensor, given: Any) -> bool:
    shape = tuple(getattr(got, "shape", ()))
    return len(shape) == want.dim() and all(
        a == b if isinstance(b, int) else not (_varies(b) and _is_dynamic(given))
        for a, b in zip(shape, want.shape, strict=True)
        if isinstance(a, int)
    )


def _varies(size: torch.SymInt) -> bool:
    """Whether torch knows a size of the inputs to have several values."""
    if free_unbacked_symbols(size) or not free_symbols(size):
        return False  # the data decides, or the ops of the graph do
    span = size.node.shape_env.bound_sympy(size.node.expr)
    return bool(span.lower != span.upper)


def _said(value: Any) -> str:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is not None and shape is not None:
        sizes = ", ".join(map(str, shape))
        return f"{str(dtype).removeprefix('torch.')}[{sizes}]"
    return "None" if value is None else with_article(type(value).__name__)


def _wrong(node: Node, own: Own | None, got: str, want: str) -> LoweringBugError:
    if own is None:
        rule = f"the rule for {called_op(node)}"
        hint = "this is a fault of tpu-export: please report it with the model"
    else:
        rule = f"your rule for {called_op(node)} ({own})"
        hint = f"correct {own}, or what the op's register_fake says"
    return LoweringBugError(f"{rule} gave {got} where torch has {want}", hint=hint)


def is_read(node: Node, position: int) -> bool:
    """Whether a node reads the result at this position of a node with several."""
    return any(
        user.target is not operator.getitem or user.args[1] == position
        for user in node.users
        if user.target is not operator.getitem or user.users
    )
