"""The first stage: a PyTorch model as a graph with a named signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.export import AdditionalInputs, ExportedProgram, ShapesCollection
from torch.export.graph_signature import ConstantArgument
from torch.utils._pytree import tree_leaves

from tpu_export.converters.stablehlo.known_sizes import settle_sizes
from tpu_export.converters.stablehlo.layout.borders import AS_TORCH, Borders
from tpu_export.converters.stablehlo.registry import Target
from tpu_export.exporter.dims import check_ranges, ones
from tpu_export.exporter.entry import (
    bind,
    exportable,
    register_annotated,
    register_dataclasses,
    source_file,
)
from tpu_export.exporter.examples import example_of, independent
from tpu_export.exporter.programs import load_program
from tpu_export.exporter.questions import questions
from tpu_export.exporter.refusals import NotExportableError
from tpu_export.exporter.shapes import (
    Shapes,
    asked_leaves,
    check_axes,
    for_torch,
    plain_shapes,
)
from tpu_export.exporter.signature import read_signature, user_arguments
from tpu_export.exporter.storable import check_storable
from tpu_export.exporter.subclasses import plain_tensors
from tpu_export.exporter.tracing import trace
from tpu_export.exporter.transforms import LOST, lost_argument
from tpu_export.runtime.dims import solve_dims
from tpu_export.runtime.signature import Signature

if TYPE_CHECKING:
    from tpu_export.exporter.stages import Lowered

Example: TypeAlias = tuple[tuple[object, ...], dict[str, object]]
Model: TypeAlias = (
    torch.nn.Module | Callable[..., object] | ExportedProgram | str | Path
)


@dataclass(frozen=True)
class Captured:
    """One signature of a model as a graph of ATen ops, not tied to any target.

    Attributes:
        name: of the signature.
        program: as torch.export made it, not decomposed.
        signature: names, shapes, dtypes and structure of inputs and results.
        symbol_names: torch's symbol ("s77") -> the dimension's name ("batch").
        model_file: the file that source locations are relative to.
        example: the args and kwargs it was captured with.
        model: the module or function that was captured; None for a program.
        given: the program as it was handed in; None for a module or function.
        borders: inputs and outputs that have their channels last here, not in the program.
    """

    name: str
    program: ExportedProgram = field(repr=False)
    signature: Signature
    symbol_names: Mapping[str, str]
    model_file: Path | None
    example: Example = field(repr=False)
    model: Callable[..., object] | None = field(default=None, repr=False)
    given: ExportedProgram | None = field(default=None, repr=False)
    borders: Borders = AS_TORCH

    @cached_property
    def eager(self) -> Callable[..., object]:
        """The reference in torch eager: the user's model, else the program handed in."""
        return self.model or (self.given or self.program).module()

    def lower(self, *, target: Target = "xla") -> Lowered:
        """Lower to StableHLO for one target.

        Raises:
            UnsupportedOpsError: ops without a rule or a decomposition, all at once.
        """
        from tpu_export.exporter import stages  # stages builds on Captured

        return stages.lower(self, target=target)

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Return the example's tensors in the order of `signature.inputs`."""
        given = zip(
            tree_leaves(self.example), user_arguments(self.program), strict=True
        )
        return tuple(
            torch.as_tensor(leaf)
            for leaf, argument in given
            if not isinstance(argument, ConstantArgument)
        )

    def example_dims(self) -> dict[str, int]:
        """Return the size that each dynamic dimension has in the example."""
        tensors = zip(self.signature.inputs, self.example_inputs(), strict=True)
        shapes = {spec.name: tuple(leaf.shape) for spec, leaf in tensors}
        return solve_dims(self.signature.inputs, shapes, self.signature.dims)[0]


def capture(
    model: Model,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    dynamic_shapes: Shapes | ShapesCollection | AdditionalInputs | None = None,
    strict: bool = False,
    name: str = "forward",
) -> Captured:
    """Capture one signature of a model with torch.export.

    Args:
        model: an nn.Module, a function or bound method, an ExportedProgram or a .pt2.
        args: example inputs, positional.
        kwargs: example inputs by name.
        dynamic_shapes: as torch.export takes them; they name the dimensions.
        strict: trace Python bytecode instead of running the model on fake tensors.
        name: of the signature.

    Raises:
        InputMismatchError: the inputs do not fit forward().
        NotExportableError: torch.export refuses; says where and why.
        DimRangeError: the model does not hold for all sizes asked for.
        ProgramFileError: the .pt2 cannot be read.
        UnsupportedValueError: no artifact can hold an input, a result or its name.
    """
    if isinstance(model, str | Path):
        model = load_program(Path(model))
    given = (tuple(args), dict(kwargs or {}))
    from tpu_export.exporter import edge_sizes  # edge_sizes builds on Captured

    if isinstance(model, ExportedProgram):
        if lost := lost_argument(model):
            raise NotExportableError(
                f"in the graph of torch.export, {lost} {LOST}",
                hint="capture the nn.Module itself, not torch's program of it",
            )
        captured = _captured(model, name, example_of(model, given))
        return edge_sizes.settle(replace(captured, given=model))
    bound = bind(model, *given)
    register_dataclasses(given)
    register_annotated(model)
    with exportable(model) as module:
        shapes = plain_shapes(dynamic_shapes, module, *given)
        check_axes(bound, shapes)
        example = independent(given, module)
        with questions() as asked:
            program = trace(module, example, for_torch(bound, shapes), strict=strict)
    wanted = asked_leaves(bound, given[1], shapes)
    captured = _captured(program, name, given, wanted)
    check_ranges(wanted, captured.signature.dims)
    captured = replace(captured, model_file=source_file(model), model=model)
    return edge_sizes.settle(captured, asked, ones(wanted))


def _captured(
    program: ExportedProgram,
    name: str,
    example: Example,
    wanted: Sequence[object] = (),
) -> Captured:
    program = settle_sizes(plain_tensors(program))
    signature, symbols = read_signature(program, name, wanted)
    check_storable(signature, program)
    return Captured(name, program, signature, symbols, None, example)
