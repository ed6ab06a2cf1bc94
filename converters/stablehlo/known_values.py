"""What a graph computes of stored tensors alone, as torch computes it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from tpu_export.converters.stablehlo.rebinding import written_roots
from tpu_export.converters.stablehlo.shared_memory import stored, stored_names


class KnownValues:
    """Values of nodes that depend on nothing but stored tensors no call writes to."""

    def __init__(self, program: ExportedProgram) -> None:
        self._values: dict[Node, Any] = dict(_kept(program))
        self._constant: set[Node] = set(self._values)
        written = written_roots(program.graph)
        for node in program.graph.nodes:
            inputs = node.all_input_nodes
            pure = node not in written and _is_pure(node.target)
            if pure and inputs and self._constant.issuperset(inputs):
                self._constant.add(node)

    def of(self, node: Node) -> Any:
        """Return the node's value; None where it is not known."""
        if node not in self._constant:
            return None
        if node not in self._values:
            op: Any = node.target
            args, kwargs = map_arg((node.args, node.kwargs), self.of)
            with torch.no_grad():
                self._values[node] = op(*args, **kwargs)
        return self._values[node]


def _is_pure(op: Any) -> bool:
    if not isinstance(op, OpOverload):
        return op is operator.getitem
    return (
        not op._schema.is_mutable and torch.Tag.nondeterministic_seeded not in op.tags
    )


def _kept(program: ExportedProgram) -> dict[Node, torch.Tensor]:
    """Return the stored tensors that no call writes to, not through shared memory either."""
    names = stored_names(program)
    held = {node: stored(program, name) for node, name in names.items()}
    written = written_roots(program.graph)
    replaced = {spec.target for spec in program.graph_signature.output_specs}
    real = {n: t for n, t in held.items() if not isinstance(t, FakeTensor)}
    changing = {
        tensor.untyped_storage().data_ptr()
        for node, tensor in real.items()
        if node in written or names[node] in replaced or _goes_inside(node)
    }
    return {
        node: tensor
        for node, tensor in real.items()
        if tensor.untyped_storage().data_ptr() not in changing
    }


def _goes_inside(node: Node) -> bool:
    """Whether a body of control flow, which may write, takes the tensor."""
    return any(isinstance(user.target, HigherOrderOperator) for user in node.users)
