"""Outputs whose values are computed in half types on the way: the dtype alone does not say so.

A bfloat16 model that ends in `.float()` is as exact as bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from tpu_export.exporter.capture import Captured
from tpu_export.parity.metrics import TOLERANCES
from tpu_export.runtime.signature import RNG, Signature

_HALVES = {
    torch.float16: TOLERANCES["float16"],
    torch.bfloat16: TOLERANCES["bfloat16"],
}


def half_limits(captured: Captured, signature: Signature) -> dict[str, float]:
    """Return the allowed max rel of what is computed in half types.

    Args:
        captured: the graph.
        signature: after lowering, with its state.

    Returns:
        by output as in a parity row, "state.NAME" and "input.NAME" too: of an output the limit
        of the coarsest dtype that an op before it gives, of the others that of the whole graph.
        Only what is computed in halves is in it.
    """
    found = _limits(captured.program.graph_module)
    arguments = [
        spec.arg
        for spec in captured.program.graph_signature.output_specs
        if spec.kind == OutputKind.USER_OUTPUT
        and not isinstance(spec.arg, ConstantArgument)
    ]
    limits = {
        spec.name: found.get(argument.name, 0.0)
        for spec, argument in zip(signature.outputs, arguments, strict=True)
    }
    anywhere = max(found.values(), default=0.0)
    slots = [slot.name for slot in signature.state if slot.name != RNG]
    limits |= {f"state.{name}": anywhere for name in slots}
    limits |= {f"input.{spec.name}": anywhere for spec in signature.inputs}
    return {name: limit for name, limit in limits.items() if limit}


def _limits(module: GraphModule) -> dict[str, float]:
    """Return by node what its value, or one before it, is rounded to; 0.0 for no half."""
    found: dict[str, float] = {}
    for node in module.graph.nodes:
        before = max((found[n.name] for n in node.all_input_nodes), default=0.0)
        found[node.name] = max(before, _own(module, node))
    return found


def _own(module: GraphModule, node: Node) -> float:
    if node.op == "get_attr":  # the body of a loop, branch or region
        body: Any = getattr(module, str(node.target), None)
        inner = _limits(body) if isinstance(body, GraphModule) else {}
        return max(inner.values(), default=0.0)
    if node.op != "call_function":  # what is given is exact
        return 0.0
    values = pytree.tree_leaves(node.meta.get("val"))
    tensors = (v for v in values if isinstance(v, torch.Tensor))
    return max((_HALVES.get(t.dtype, 0.0) for t in tensors), default=0.0)


def allowed(dtype: str, limit: float) -> float | None:
    """Return the limit of an output with half types before it; None: that of its dtype."""
    own = TOLERANCES.get(dtype, 0.0)
    return limit if 0 < own < limit else None


def limits_arrays(
    halves: Mapping[str, float], signature: Signature
) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the limits of outputs as they are kept with golden arrays."""
    return {
        f"limits/{spec.name}": np.asarray(halves[spec.name], np.float64)
        for spec in signature.outputs
        if spec.name in halves
    }
