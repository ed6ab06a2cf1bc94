"""The signature of an exported program, read from the kinds that torch declares.

Nothing here relies on positions of graph inputs: the user's leaves are the specs of
kind USER_INPUT and USER_OUTPUT, in the order of the call spec's leaves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
)
from torch.utils._pytree import TreeSpec

from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.exporter.dims import DimNames, bounds, name_dims
from tpu_export.exporter.dropped_axes import kept_axes
from tpu_export.exporter.guards import Leaves, read_constraints
from tpu_export.exporter.names import dotted, unique
from tpu_export.exporter.trees import Path, child_keys, describe
from tpu_export.runtime.errors import TpuExportError, with_article
from tpu_export.runtime.signature import Parameter, Signature, TensorSpec, Tree

_SCALARS = {
    SymIntArgument: "int64",
    SymFloatArgument: "float64",
    SymBoolArgument: "bool",
}


class UnsupportedValueError(TpuExportError):
    """An input or output that no artifact can hold: a sparse tensor, an object."""

    code = "TPX-0105"


@dataclass
class _Leaves:
    """The tensors met so far while a tree is described."""

    program: ExportedProgram
    arguments: Sequence[ArgumentSpec]
    wanted: Sequence[object]
    paths: list[Path] = field(default_factory=list)
    values: list[torch.Tensor | str] = field(default_factory=list)
    asked: list[object] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        self._nodes = {node.name: node for node in self.program.graph.nodes}

    def describe(self, path: Path) -> Tree:
        """Take the next leaf: constants stay in the tree, tensors become entries."""
        argument, index = self.arguments[self._next], self._next
        self._next += 1
        if isinstance(argument, ConstantArgument):
            return {"const": _constant(argument.value, path)}
        self.paths.append(path)
        self.asked.append(self.wanted[index] if self.wanted else None)
        self.values.append(self._value(argument, path))
        return {"leaf": len(self.values) - 1}

    def _value(self, argument: ArgumentSpec, path: Path) -> torch.Tensor | str:
        if type(argument) in _SCALARS:
            return _SCALARS[type(argument)]
        value = self._nodes[argument.name].meta["val"]
        if isinstance(
            value, int | float | bool | torch.SymInt
        ):  # an older program's leaf
            return "bool" if isinstance(value, bool) else "int64"
        if not isinstance(value, torch.Tensor):
            raise _unsupported(path, f"is {with_article(type(value).__name__)}")
        if value.layout != torch.strided:
            raise _unsupported(path, f"is a tensor of layout {value.layout}")
        if value.dtype not in DTYPES:
            raise _unsupported(path, f"has dtype {value.dtype}")
        return value

    def specs(self, names: Sequence[str], dims: DimNames) -> tuple[TensorSpec, ...]:
        """Return the spec of every tensor met."""
        return tuple(
            TensorSpec(name, (), value)
            if isinstance(value, str)
            else TensorSpec(name, dims.shape(value.shape), DTYPES[value.dtype].name)
            for name, value in zip(names, self.values, strict=True)
        )

    def sizes(self, specs: Sequence[TensorSpec], dims: Collection[str]) -> Leaves:
        """Return where torch's guards find the sizes, and numbers that no dim is named as."""
        by_path = dict(zip(self.paths, specs, strict=True))
        for path, spec in zip(self.paths, specs, strict=True):
            name, _, place = str(path[0]).rpartition("_")  # *args are args_0, args_1 …
            if place.isdigit():
                by_path.setdefault((name, int(place), *path[1:]), spec)
        return Leaves(
            shapes={path: spec.shape for path, spec in by_path.items()},
            numbers={
                path: spec.name
                for path, spec in by_path.items()
                if not spec.shape and spec.dtype == "int64" and spec.name not in dims
            },
        )


def read_signature(
    program: ExportedProgram, name: str, wanted: Sequence[object] = ()
) -> tuple[Signature, dict[str, str]]:
    """Return the signature, and the dimension name of each torch symbol.

    Args:
        program: of torch.export, fresh or loaded.
        name: of the signature.
        wanted: what dynamic_shapes says of each leaf of (args, kwargs), in leaf order.
    """
    inputs = _Leaves(program, user_arguments(program), wanted)
    parameters = _parameters(program, inputs)
    input_names = unique(dotted(path) for path in inputs.paths)
    dims = name_dims(*_tensors(input_names, inputs))

    outputs = _Leaves(program, _results(program), ())
    output_tree = _output_tree(program, outputs)
    output_names = unique(_output_name(path) for path in outputs.paths)
    specs = inputs.specs(input_names, dims)
    ranges = bounds(program, dims)
    sizes = inputs.sizes(specs, dims.names.values())
    asked = {root.__name__ for root in dims.roots.values()}
    signature = Signature(
        name=name,
        parameters=parameters,
        inputs=specs,
        outputs=outputs.specs(output_names, dims),
        output_tree=output_tree,
        dims=ranges,
        constraints=(
            *read_constraints(program, sizes, ranges, asked),
            *kept_axes(program, dims, ranges),
        ),
    )
    return signature, dict(dims.names)


def user_arguments(program: ExportedProgram) -> list[ArgumentSpec]:
    """Return the graph's argument for each leaf of (args, kwargs), in leaf order."""
    specs = program.graph_signature.input_specs
    return [spec.arg for spec in specs if spec.kind == InputKind.USER_INPUT]


def _results(program: ExportedProgram) -> list[ArgumentSpec]:
    specs = program.graph_signature.output_specs
    return [spec.arg for spec in specs if spec.kind == OutputKind.USER_OUTPUT]


def _tensors(
    names: Sequence[str], leaves: _Leaves
) -> tuple[list[tuple[str, torch.Tensor]], list[object]]:
    kept = [
        (name, value, asked)
        for name, value, asked in zip(names, leaves.values, leaves.asked, strict=True)
        if isinstance(value, torch.Tensor)
    ]
    return [(name, value) for name, value, _ in kept], [asked for *_, asked in kept]


def _parameters(program: ExportedProgram, leaves: _Leaves) -> tuple[Parameter, ...]:
    spec = program.call_spec.in_spec
    if spec is None:
        return ()
    positional, keyword = spec.children()
    names = _positional_names(program, positional.num_children)
    parameters = [
        Parameter(name, "positional", describe(child, leaves.describe, (name,)))
        for name, child in zip(names, positional.children(), strict=True)
    ]
    parameters += [
        Parameter(str(name), "keyword", describe(child, leaves.describe, (name,)))
        for name, child in zip(child_keys(keyword), keyword.children(), strict=True)
    ]
    return tuple(parameters)


def _positional_names(program: ExportedProgram, count: int) -> list[str]:
    """Return forward()'s names of the positional parameters."""
    graph = program.module_call_graph
    signature = graph[0].signature if graph else None
    names = list(signature.forward_arg_names or []) if signature else []
    return [*names, *(f"arg_{i}" for i in range(len(names), count))][:count]


def _output_tree(program: ExportedProgram, leaves: _Leaves) -> Tree:
    spec: TreeSpec | None = program.call_spec.out_spec
    return {"const": None} if spec is None else describe(spec, leaves.describe)


def _output_name(path: Path) -> str:
    """Name a result: keys as they are, "output_1" for a position of a bare tuple."""
    first, *rest = path or (0,)
    return dotted((f"output_{first}" if isinstance(first, int) else first, *rest))


def _constant(value: object, path: Path) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise _unsupported(path, f"is a constant of type {type(value).__name__}")


def _unsupported(path: Path, what: str) -> UnsupportedValueError:
    where = dotted(path) or "the result"
    return UnsupportedValueError(
        f"{where} {what}",
        hint="inputs and results are dense tensors, numbers, strings and None "
        "in lists, tuples, dicts and dataclasses",
    )
