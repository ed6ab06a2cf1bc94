"""What each TRANSPOSE of a .tflite moves in a call, and the op of the model that caused it."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.scopes import Place, first_place

# Bytes of an element by the schema's TensorType; of others they are 4.
_BYTES = {1: 2, 3: 1, 4: 8, 6: 1, 7: 2, 9: 1, 10: 8, 12: 8, 16: 2}


@dataclass(frozen=True)
class Transpose:
    """One op.

    Attributes:
        shape: of its operand; result shape[i] == shape[perm[i]].
        size: bytes that it reads, and writes again.
        place: the op of the model that wants another order of the dimensions.
    """

    shape: tuple[int, ...]
    perm: tuple[int, ...]
    size: int
    place: Place

    def to_json(self) -> dict[str, object]:
        """Return it as JSON-able values."""
        return asdict(self)


def transposes(path: Path) -> dict[str, tuple[Transpose, ...]]:
    """Return the transposes of each signature of a .tflite, largest first."""
    from ai_edge_litert import schema_py_generated as schema

    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = schema.Model.GetRootAs(data, 0)
    transposing = {
        i
        for i in range(model.OperatorCodesLength())
        if model.OperatorCodes(i).BuiltinCode() == schema.BuiltinOperator.TRANSPOSE
    }
    found = {}
    for i in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(i)
        graph = model.Subgraphs(signature.SubgraphIndex())
        operators = (graph.Operators(n) for n in range(graph.OperatorsLength()))
        read = [
            _read(model, graph, op)
            for op in operators
            if op.OpcodeIndex() in transposing
        ]
        found[signature.SignatureKey().decode()] = tuple(
            sorted(read, key=lambda t: -t.size)
        )
    return found


def _read(model: Any, graph: Any, operator: Any) -> Transpose:
    value, order = (graph.Tensors(operator.Inputs(i)) for i in range(2))
    result = graph.Tensors(operator.Outputs(0))
    perm = model.Buffers(order.Buffer()).DataAsNumpy()
    shape = tuple(int(d) for d in value.ShapeAsNumpy())
    names = [tensor.Name().decode() for tensor in (result, value)]
    return Transpose(
        shape=shape,
        perm=tuple(int(d) for d in np.asarray(perm).view(np.int32)),
        size=int(np.prod(shape)) * _BYTES.get(value.Type(), 4),
        place=first_place(names),
    )


def total(found: Mapping[str, Sequence[Transpose]]) -> str:
    """Return one line about all of them."""
    each = [f"{_summed(name, ts)}" for name, ts in found.items() if ts]
    return "; ".join(each) or "no transposes"


def _summed(name: str, found: Sequence[Transpose]) -> str:
    count, moved = len(found), sum(t.size for t in found) / 1e6
    some = "1 transpose moves" if count == 1 else f"{count} transposes move"
    return f"{some} {moved:.2f} MB per call of {name}"


def table(found: Mapping[str, Sequence[Transpose]]) -> list[list[str]]:
    """Return one row each, after a header."""
    rows = [
        [
            name,
            f"{t.size / 1e3:.1f} kB",
            _listed(t.shape),
            _listed(t.perm),
            str(t.place),
        ]
        for name, ts in found.items()
        for t in ts
    ]
    return [["signature", "moves", "shape", "order", "because of"], *rows]


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
