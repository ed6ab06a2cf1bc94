"""Stored tensors that share memory: one of them is kept, and the others are views of it.

torch.export gives each name an input of its own. As values they are independent, so a write
to one would not be seen through another.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node

from tpu_export.converters.stablehlo.graph_copy import updated
from tpu_export.converters.stablehlo.rebinding import written_roots
from tpu_export.runtime.errors import TpuExportError

aten = torch.ops.aten
STORED = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
Members = Mapping[Node, torch.Tensor]


class SharedStorageError(TpuExportError):
    """A call writes to tensors that overlap in memory, none of which holds the others."""

    code = "TPX-0206"


def share_memory(program: ExportedProgram) -> ExportedProgram:
    """Return the program with one stored tensor for memory that a call writes to.

    Args:
        program: changed in place.

    Raises:
        SharedStorageError: tensors overlap, and none holds the others.
    """
    written = written_roots(program.graph)
    names = stored_names(program)
    tensors = {node: stored(program, name) for node, name in names.items()}
    gone: set[str] = set()
    for group in _groups(tensors):
        if written.isdisjoint(group) or _apart(list(group.values())):
            continue
        base = _holder(group)
        if base is None:
            listed = " and ".join(names[node] for node in group)
            raise SharedStorageError(
                f"{listed} share memory, and a call writes to it",
                hint="keep one buffer and take views of it inside forward()",
            )
        for node in group:
            if node is not base:
                _replace(program.graph, node, base, tensors)
                gone.add(node.name)
    if not gone:
        return program
    signature = copy.deepcopy(program.graph_signature)
    signature.input_specs = [s for s in signature.input_specs if s.arg.name not in gone]
    program.graph_module.recompile()
    return updated(program, program.graph_module, signature)


def stored(program: ExportedProgram, name: str) -> torch.Tensor:
    """Return a parameter, buffer or constant by its name."""
    found = program.state_dict.get(name)
    tensor = program.constants[name] if found is None else found
    assert isinstance(tensor, torch.Tensor), name
    return tensor.detach()


def stored_names(program: ExportedProgram) -> dict[Node, str]:
    """Return the name of each placeholder that is a parameter, buffer or constant."""
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    specs = zip(placeholders, program.graph_signature.input_specs, strict=True)
    return {n: s.target for n, s in specs if s.kind in STORED and s.target is not None}


def _groups(tensors: Members) -> list[dict[Node, torch.Tensor]]:
    """Return the tensors of each piece of memory that several share."""
    found: dict[int, dict[Node, torch.Tensor]] = {}
    for node, tensor in tensors.items():
        if tensor.numel() and not isinstance(tensor, FakeTensor):
            place = tensor.untyped_storage().data_ptr()
            found.setdefault(place, {})[node] = tensor
    return [group for group in found.values() if len(group) > 1]


def _places(tensor: torch.Tensor) -> np.ndarray:
    """Return which bytes of its storage the tensor is."""
    items = tensor.untyped_storage().nbytes() // tensor.itemsize
    index = torch.arange(items).as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset()
    )
    held = np.zeros(items, np.bool_)
    held[index.reshape(-1).numpy()] = True
    return held.repeat(tensor.itemsize)


def _apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether no two of the tensors hold the same byte."""
    return bool(sum(_places(t).sum() for t in tensors) == _union(tensors).sum())


def _union(tensors: Sequence[torch.Tensor]) -> np.ndarray:
    held: np.ndarray = np.any([_padded(_places(t), tensors) for t in tensors], axis=0)
    return held


def _padded(held: np.ndarray, tensors: Sequence[torch.Tensor]) -> np.ndarray:
    size = tensors[0].untyped_storage().nbytes()
    return np.pad(held, (0, size - held.size))


def _holder(group: Members) -> Node | None:
    """Return the tensor that the others are views of."""
    tensors = list(group.values())
    total = _union(tensors).sum()
    for node, tensor in group.items():
        same = all(t.dtype == tensor.dtype for t in tensors)
        if same and tensor.numel() * tensor.itemsize == total and _dense(tensor):
            return node
    return None


def _dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor's elements follow one another, in some order of its axes."""
    return torch.empty_like(tensor).stride() == tensor.stride()


def _replace(graph: Graph, node: Node, base: Node, tensors: Members) -> None:
    """Make an input a view of another one."""
    own, whole = tensors[node], tensors[base]
    view = base
    if (own.shape, own.stride()) != (whole.shape, whole.stride()):
        offset = own.storage_offset() - whole.storage_offset()
        args = (own.shape, own.stride(), offset)
        first = next(n for n in graph.nodes if n.op != "placeholder")
        with graph.inserting_before(first):
            view = graph.call_function(aten.as_strided.default, (base, *args))
        view.meta = dict(node.meta)
    node.replace_all_uses_with(view)
    graph.erase_node(node)
