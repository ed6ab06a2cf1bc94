"""What no artifact can hold is refused when it is captured, not when it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram

from tpu_export.exporter.signature import UnsupportedValueError
from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.conformance import check_signature
from tpu_export.runtime.signature import Signature, TensorSpec, Tree

_HINT = (
    "names have 1 to 1024 characters and structures at most 64 levels: return or take "
    "the tensors in another structure"
)


def check_storable(signature: Signature, program: ExportedProgram) -> None:
    """Refuse a signature that breaks a rule of the format, or that computes nothing.

    Raises:
        UnsupportedValueError: a name, a structure or a rank is outside the format's
            limits (docs/tpuexe.md, 3.5 and 3.9), or no tensor is returned.
    """
    if not signature.outputs and not _writes(program):
        raise UnsupportedValueError(
            f"signature {signature.name!r}: the model returns no tensor",
            hint="return at least one tensor from forward()",
        )
    try:
        check_signature(replace(signature, outputs=_sized(signature.outputs)), {})
    except ArtifactCorruptedError as error:
        what = error.what
        if what.endswith("too deep"):
            what += f": {_deepest(signature)}"
        raise UnsupportedValueError(
            f"no artifact can hold this model: {what}", hint=_HINT
        ) from error


def _sized(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return outputs with numbers for sizes: lowering spells dynamic ones anew."""
    return tuple(
        replace(spec, shape=tuple(d if isinstance(d, int) else 1 for d in spec.shape))
        for spec in specs
    )


def _writes(program: ExportedProgram) -> bool:
    """Whether an op writes in place, such as to a buffer: that is a result too."""
    graphs = [
        module.graph
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
    ]
    ops = [node.target for graph in graphs for node in graph.nodes]
    mutable = any(
        isinstance(op, torch._ops.OpOverload) and op._schema.is_mutable for op in ops
    )
    return mutable or bool(program.graph_signature.buffers_to_mutate)


def _deepest(signature: Signature) -> str:
    """Name the structure that is nested most."""
    trees = {f"parameter {p.name!r}": p.tree for p in signature.parameters}
    depths = {
        name: _depth(t)
        for name, t in {**trees, "result": signature.output_tree}.items()
    }
    name = max(depths, key=lambda name: depths[name])
    return f"the {name} is nested {depths[name]} deep"


def _depth(tree: Tree) -> int:
    children: Any = tree.get("list", tree.get("tuple", []))
    pairs: Any = tree.get("dict", tree.get("fields", []))
    return 1 + max([_depth(t) for t in (*children, *(t for _, t in pairs))], default=0)
