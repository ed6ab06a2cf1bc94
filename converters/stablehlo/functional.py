"""Mutation made explicit: which nodes are one tensor, which inputs get new values.

Most graphs with in-place ops need no rewriting: an op that writes to a tensor of which no view
is read later rebinds that tensor's name. Only where views are alive across a write,
torch's own functionalization runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from tpu_export.converters.stablehlo.bodies import functional_bodies
from tpu_export.converters.stablehlo.errors import UnsupportedWriteError
from tpu_export.converters.stablehlo.graph_copy import changed, graphs, nodes
from tpu_export.converters.stablehlo.hidden_aliases import show_aliases
from tpu_export.converters.stablehlo.hidden_writes import announce, hides
from tpu_export.converters.stablehlo.idle_writes import drop_idle_writes
from tpu_export.converters.stablehlo.in_place import is_in_place, writes
from tpu_export.converters.stablehlo.rebinding import rebinding, trains
from tpu_export.converters.stablehlo.regions import REGIONS, inline_regions
from tpu_export.converters.stablehlo.shared_memory import share_memory
from tpu_export.converters.stablehlo.strides import STRIDED, plain_strides


@dataclass(frozen=True)
class Functional:
    """A program whose writes are explicit.

    Attributes:
        program: the program to interpret, decomposed only if it had to be.
        same: node -> the node whose tensor it is (results of in-place ops).
        written: placeholders that get a new value by rebinding, in order.
    """

    program: ExportedProgram
    same: Mapping[Node, Node] = field(default_factory=dict)
    written: tuple[Node, ...] = ()


def functionalize(program: ExportedProgram) -> Functional:
    """Return the program with its mutations explicit.

    Raises:
        UnsupportedWriteError: torch cannot make a write explicit.
    """
    program = _plain(program)
    kinds = {spec.kind.name for spec in program.graph_signature.output_specs}
    if kinds <= {"USER_OUTPUT"}:
        inner = _inner_writes(program.graph_module)
        found = None if inner else rebinding(program.graph)
        if found is not None:
            return Functional(program, *found)
    elif not any(writes(node) for node in program.graph.nodes):
        return Functional(program)
    with warnings.catch_warnings():  # torch's about its own pytrees
        warnings.filterwarnings("ignore", category=FutureWarning)
        try:
            program = program.run_decompositions({})
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise _unsupported(_first_line(error)) from error
    plain_strides(program.graph)
    return Functional(program)


def _unsupported(reason: str) -> UnsupportedWriteError:
    return UnsupportedWriteError(
        f"a write in place cannot be made explicit: {reason}",
        hint="compute new tensors (x = x + 1, torch.cat, torch.where) instead of "
        "writing to a part of one or to memory that others share",
    )


def _plain(program: ExportedProgram) -> ExportedProgram:
    """Return the program with regions in line, and writes and views that say so."""
    module = program.graph_module
    if not any(
        is_in_place(node.target)
        or node.target in REGIONS | STRIDED
        or hides(node)
        or trains(node)
        for node in nodes(module)
    ):
        return program
    return share_memory(changed(program, _make_plain))


def _make_plain(module: GraphModule) -> None:
    inline_regions(module)
    for part in graphs(module):
        drop_idle_writes(part.graph)
        announce(part.graph)
        show_aliases(part)
        plain_strides(part.graph)
        for node in part.graph.nodes:
            _check_overlap(node)
    functional_bodies(module)


def _check_overlap(node: Node) -> None:
    """Refuse a write to a tensor several elements of which are one place in memory."""
    for target in writes(node):
        value = target.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        axes = zip(value.shape, value.stride(), strict=True)
        if any(isinstance(n, int) and n > 1 and step == 0 for n, step in axes):
            raise _unsupported(f"{node.target} writes to an expanded tensor")


def _inner_writes(module: GraphModule) -> bool:
    """Whether a body of control flow still writes."""
    return any(
        is_in_place(node.target)
        for part in graphs(module)
        if part is not module
        for node in part.graph.nodes
    )


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
