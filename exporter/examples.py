"""Example inputs for a program that was exported elsewhere."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils._pytree import tree_flatten, tree_structure, tree_unflatten

from tpu_export.exporter.entry import InputMismatchError

Example: TypeAlias = tuple[tuple[object, ...], dict[str, object]]


def example_of(program: ExportedProgram, given: Example) -> Example:
    """Return the inputs that were given, else those in the program, else seeded ones.

    Raises:
        InputMismatchError: the given inputs have another structure than the program's.
    """
    if given == ((), {}):
        kept = program.example_inputs
        return (tuple(kept[0]), dict(kept[1])) if kept else _seeded(program)
    wanted = program.call_spec.in_spec
    if wanted is not None and tree_structure(given) != wanted:
        raise InputMismatchError(
            "the inputs do not fit the exported program: it takes (args, kwargs) like "
            f"{_one_line(wanted)}, not {_one_line(tree_structure(given))}",
            hint="pass inputs of the same structure, keywords in the same order, "
            "or none: the program keeps its example inputs",
        )
    return given


def independent(example: Example, module: torch.nn.Module) -> Example:
    """Return the inputs with copies of those that are memory of the model or of one another.

    torch takes two inputs that are one tensor for one input, whatever a call passes later.
    """
    taken = {_memory(t) for t in (*module.parameters(), *module.buffers())}
    leaves, spec = tree_flatten(example)
    copied = False
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
            continue
        if _memory(leaf) in taken:
            leaves[i] = leaf.detach().clone().requires_grad_(leaf.requires_grad)
            copied = True
        taken.add(_memory(leaves[i]))
    return tree_unflatten(leaves, spec) if copied else example


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _one_line(spec: object) -> str:
    return " ".join(str(spec).split())


def _seeded(program: ExportedProgram) -> Example:
    generator = torch.Generator().manual_seed(0)
    nodes = {node.name: node for node in program.graph.nodes}
    leaves: list[object] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            leaves.append(spec.arg.value)
        else:
            leaves.append(_like(nodes[spec.arg.name].meta["val"], generator))
    in_spec = program.call_spec.in_spec
    if in_spec is None:
        return tuple(leaves), {}
    args, kwargs = tree_unflatten(leaves, in_spec)
    return tuple(args), dict(kwargs)


def _like(value: object, generator: torch.Generator) -> object:
    if not isinstance(value, torch.Tensor):
        return 2 if isinstance(value, torch.SymInt) else value
    shape = [_size(size) for size in value.shape]
    if value.dtype.is_floating_point or value.dtype.is_complex:
        return torch.randn(shape, generator=generator).to(value.dtype)
    return torch.zeros(shape, dtype=value.dtype)  # any index is in range


def _size(size: int | torch.SymInt) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return int(hint) if hint is not None else 2
