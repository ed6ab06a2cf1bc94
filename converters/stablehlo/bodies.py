"""Bodies of loops and branches without writes in place.

torch cannot make the writes in the body of a scan or a map explicit.
"""

from __future__ import annotations

import warnings

import torch
from torch._guards import detect_fake_mode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tpu_export.converters.stablehlo.branch_writes import show_writes
from tpu_export.converters.stablehlo.hidden_writes import announce_batch_norms
from tpu_export.converters.stablehlo.in_place import is_in_place
from tpu_export.converters.stablehlo.rebinding import rebind


def functional_bodies(module: GraphModule) -> None:
    """Make the writes explicit in the graphs that a graph has; innermost first.

    What a branch or loop body writes to outside of it, the graph itself writes to then.
    """
    for name, inner in list(module.named_children()):
        if not isinstance(inner, GraphModule):
            continue
        functional_bodies(inner)
        announce_batch_norms(inner.graph)
        writes = any(is_in_place(n.target) for n in inner.graph.nodes)
        if writes and not rebind(inner):
            setattr(module, name, _functional(inner))
    show_writes(module)


def _functional(module: GraphModule) -> GraphModule:
    """Return the body as torch traces it with views and writes to them as values."""
    module.recompile()
    inputs = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    mode = detect_fake_mode(inputs)
    if mode is None:
        return module
    functional = torch.func.functionalize(module, remove="mutations")
    with torch.no_grad(), mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced: GraphModule = make_fx(functional)(*inputs)
    traced.graph.eliminate_dead_code()
    return traced
