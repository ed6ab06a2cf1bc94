"""Why a node cannot be lowered: the data decides a shape, an option, or a fault of ours."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import jax
import torch
from jax.errors import InconclusiveDimensionOperation
from torch.fx import Node

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.location import scope, source_line, spoken
from tpu_export.converters.stablehlo.mutating import called_op
from tpu_export.converters.stablehlo.registry import Own
from tpu_export.converters.stablehlo.results import OwnRuleRaisedError
from tpu_export.runtime.errors import TpuExportError


class RuleFailedError(TpuExportError):
    """A rule raised."""

    code = "TPX-0204"


def refusal(
    node: Node, values: Any, error: BaseException, model_file: Path | None
) -> TpuExportError:
    """Return the error to raise for one that came up while lowering a node.

    Args:
        node: the node of the user's graph.
        values: what each of its input nodes was, by node.
        error: of a rule, or of JAX below it.
        model_file: source lines are relative to its folder.
    """
    op, place = called_op(node), scope(node, model_file)
    own = None
    if isinstance(error, OwnRuleRaisedError):
        own = error.own
        assert error.__cause__ is not None
        error = error.__cause__
    if isinstance(error, TpuExportError):
        if not hasattr(error, "place"):
            error.message += f", at {spoken(place, error.message)}"
            error.__dict__["place"] = place
        return error
    found = _from_data(node, values)
    if found is not None:
        origin = f"{_name(found)} at {source_line(found, model_file)}"
        return UnsupportedOptionError(
            f"{_name(node)} takes a size that depends on the data: it comes from "
            f"{origin}, at {spoken(place)}",
            hint="pass the size as a dynamic dimension of an input, or compute with the "
            "largest size and mask",
        )
    if own is None and isinstance(error, InconclusiveDimensionOperation):
        return UnsupportedOptionError(
            f"{op} needs to know whether {_comparison(error)}, which the ranges of the "
            f"dynamic dimensions leave open, at {spoken(place, str(op))}",
            hint="give the Dims a range (min=, max=) that decides it, or leave the axis static",
        )
    if own is not None:
        return RuleFailedError(
            f"your rule for {op} ({own}) raised{_raised_at(error, own)} "
            f"{type(error).__name__}: {_first_line(error)}, at {spoken(place, str(op))}",
            hint="it is called with the op's parameters, tensors as JAX arrays",
        )
    return RuleFailedError(
        f"the rule for {op} failed at {spoken(place, str(op))}: {_first_line(error)}",
        hint="this is a fault of tpu-export: please report it with the model; "
        "a rule of your own (tpu_export.lowers) can stand in",
    )


def _comparison(error: Exception) -> str:
    """Return "n > 7" of JAX's "Symbolic dimension comparison 'n' > '7' is inconclusive."."""
    said = _first_line(error)
    found = re.search(r"comparison (.+) is inconclusive", said)
    return found[1].replace("'", "") if found else said


def _raised_at(error: BaseException, own: Own) -> str:
    """Return " in line 12" of the user's file, the innermost one."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == own.file
    ]
    return f" in line {lines[-1]}" if lines else ""


def _from_data(node: Node, values: Any) -> Node | None:
    """Return the node that read a size from a tensor, if that is what `node` takes."""
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if not isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat):
            continue
        if source in values and not isinstance(values[source], jax.core.Tracer):
            continue
        inner = _from_data(source, values)
        return inner or source
    return None


def _name(node: Node) -> str:
    """Return "arange" for aten.arange.default; item() is spelled as users do."""
    name = getattr(node.target, "__name__", str(node.target)).split(".")[0]
    return {"_local_scalar_dense": "item()", "item": "item()"}.get(name, name)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
