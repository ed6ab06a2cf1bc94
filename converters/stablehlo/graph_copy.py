"""A program's graphs, copied so that a pass may change them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg


def graphs(module: GraphModule) -> Iterator[GraphModule]:
    """Return the graph and those in it: bodies of loops, branches and regions."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield part


def nodes(module: GraphModule) -> Iterator[Node]:
    """Return the nodes of the graph and of those in it."""
    for part in graphs(module):
        yield from part.graph.nodes


def changed(
    program: ExportedProgram, change: Callable[[GraphModule], None]
) -> ExportedProgram:
    """Return the program with its graphs changed; its own stay as they are.

    A node that `change` puts in the place of a result keeps that result's place: results go
    by name, and the names in the signature follow the graph's output.
    """
    module = copied(program.graph_module)
    signature = copy.deepcopy(program.graph_signature)
    change(module)
    for part in graphs(module):
        part.graph.lint()
        part.recompile()
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    for spec, value in zip(signature.output_specs, output.args[0], strict=True):
        if isinstance(value, Node):
            spec.arg.name = value.name
    return updated(program, module, signature)


def with_constants(
    program: ExportedProgram, tensors: Mapping[str, torch.Tensor]
) -> ExportedProgram:
    """Return the program with further constants, before its first input; nothing reads them."""
    module = copied(program.graph_module)
    signature = copy.deepcopy(program.graph_signature)
    first = next(n for n in module.graph.nodes if n.op == "placeholder")
    mode: Any = detect_fake_mode([n.meta.get("val") for n in module.graph.nodes])
    specs = []
    for name, tensor in tensors.items():
        with module.graph.inserting_before(first):
            node = module.graph.placeholder(name)
        node.name = name
        node.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
        argument = TensorArgument(name)
        specs.append(InputSpec(InputKind.CONSTANT_TENSOR, argument, name))
    signature.input_specs = [*specs, *signature.input_specs]
    module.recompile()
    constants = {**program.constants, **tensors}
    return updated(program, module, signature, constants)


def updated(
    program: ExportedProgram,
    module: GraphModule,
    signature: ExportGraphSignature,
    constants: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """Return the program with another graph; torch copies its own pytrees with a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        return program._update(module, signature, state_dict=state, constants=constants)


def copied(module: GraphModule) -> GraphModule:
    """Return the graph and those in it, under the same names of nodes."""
    twin = copy.copy(module)
    twin.graph = copy.deepcopy(module.graph)
    for old, new in zip(module.graph.nodes, twin.graph.nodes, strict=True):
        new.name = old.name  # the signature goes by names, and the copy changed "input"
    for name, inner in module.named_children():
        if isinstance(inner, GraphModule):
            setattr(twin, name, copied(inner))
    return twin


def splice(
    module: GraphModule, node: Node, inner: GraphModule, operands: Sequence[Any]
) -> None:
    """Put the nodes of a graph in the place of one that calls it.

    Args:
        module: has the node.
        node: what it gives is what `inner` gives, one value or several.
        inner: a graph that nothing else uses.
        operands: a value or node for each of the graph's inputs.
    """
    results = _copy_nodes(module, node, inner, operands)
    if isinstance(results, list | tuple):
        for user in list(node.users):
            place: Any = user.args[1]
            user.replace_all_uses_with(results[place])
            module.graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    module.graph.erase_node(node)


def _copy_nodes(
    module: GraphModule, before: Node, inner: GraphModule, operands: Sequence[Any]
) -> Any:
    feed = iter(operands)
    known: dict[Node, Any] = {}
    for node in inner.graph.nodes:
        if node.op == "placeholder":
            known[node] = next(feed)
        elif node.op == "output":
            return map_arg(node.args[0], known.__getitem__)
        else:
            with module.graph.inserting_before(before):
                copied = module.graph.node_copy(node, known.__getitem__)
            known[node] = copied
            if node.op == "get_attr":
                copied.target = _adopt(module, attrgetter(str(node.target))(inner))
    message = "a graph without an output"
    raise AssertionError(message)


def _adopt(module: GraphModule, value: object) -> str:
    """Give a module an attribute of a graph that is put into it."""
    count = 0
    while hasattr(module, f"inlined_{count}"):
        count += 1
    setattr(module, f"inlined_{count}", value)
    return f"inlined_{count}"
