"""Stored tensors of a class of their own, as torchao has, become the plain tensors inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.export.custom_ops  # registers access_subclass_inner_tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, TensorArgument
from torch.fx import Node
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tpu_export.converters.stablehlo.graph_copy import copied, updated
from tpu_export.converters.stablehlo.location import scope, spoken
from tpu_export.exporter.signature import UnsupportedValueError

_READ = torch.ops.export.access_subclass_inner_tensor.default


def plain_tensors(program: ExportedProgram) -> ExportedProgram:
    """Return the program with what it stores as plain tensors, which share its memory.

    Given:  `layer.weight`, of a class with attributes qdata and scale, and reads of these
    Result: `layer.weight.qdata` and `layer.weight.scale`

    Raises:
        UnsupportedValueError: such a tensor is an input, or the graph takes one as a whole.
    """
    stored = {**program.state_dict, **program.constants}
    wrapped = {name: t for name, t in stored.items() if _is_wrapper(t)}
    nodes = program.graph.nodes
    if not wrapped and not any(_is_wrapper(n.meta.get("val")) for n in nodes):
        return program
    module, signature = copied(program.graph_module), program.graph_signature
    places = [n for n in module.graph.nodes if n.op == "placeholder"]
    specs: list[InputSpec] = []
    for node, spec in zip(places, signature.input_specs, strict=True):
        specs += _inside(node, spec, wrapped.get(str(spec.target)))
    module.graph.lint()
    module.recompile()
    signature = replace(signature, input_specs=specs)
    state, constants = _flat(program.state_dict), _flat(program.constants)
    return updated(program, module, signature, constants, state)


def _is_wrapper(value: object) -> bool:
    return isinstance(value, torch.Tensor) and is_traceable_wrapper_subclass(value)


def _inside(node: Node, spec: InputSpec, tensor: Any) -> list[InputSpec]:
    """Put a placeholder for each inner tensor that is read in the place of a node."""
    reads = [user for user in node.users if user.target is _READ]
    if tensor is None and not reads and not _is_wrapper(node.meta.get("val")):
        return [spec]
    if tensor is None or len(reads) < len(node.users):
        raise _refused(node, spec, [user for user in node.users if user not in reads])
    found = []
    for name in dict.fromkeys(str(read.args[1]) for read in reads):
        own = [read for read in reads if read.args[1] == name]
        with node.graph.inserting_before(node):
            inner = node.graph.placeholder(f"{node.name}_{name}")
        inner.meta["val"] = own[0].meta["val"]
        for read in own:
            read.replace_all_uses_with(inner)
            node.graph.erase_node(read)
        argument, target = TensorArgument(inner.name), f"{spec.target}.{name}"
        value = getattr(tensor, name)
        new = replace(spec, arg=argument, target=target)
        found += _inside(inner, new, value if _is_wrapper(value) else None)
    node.graph.erase_node(node)
    return found


def _flat(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors by name, inner ones in the place of those that hold them."""
    return dict(pair for name, value in tensors.items() for pair in _parts(name, value))


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not _is_wrapper(value):
        yield name, value
        return
    for attribute in value.__tensor_flatten__()[0]:
        for path, inner in _parts(f"{name}.{attribute}", getattr(value, attribute)):
            kept = isinstance(value, torch.nn.Parameter)
            yield path, torch.nn.Parameter(inner, False) if kept else inner


def _refused(
    node: Node, spec: InputSpec, users: Sequence[Node]
) -> UnsupportedValueError:
    if spec.target is None:
        return UnsupportedValueError(
            f"input {node.name} is a tensor of a class of its own, made of others",
            hint="take plain tensors; weights of such classes may stay",
        )
    used = ["the result" if u.op == "output" else spoken(scope(u)) for u in users]
    return UnsupportedValueError(
        f"{spec.target} is a tensor of a class of its own, made of others, and is used as a "
        f"whole by {', '.join(used)}",
        hint="use it only by ops that its class computes with plain tensors, such as F.linear",
    )
