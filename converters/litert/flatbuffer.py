"""What a .tflite holds: its ops, counted per signature."""

from __future__ import annotations

import mmap
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

Histogram: TypeAlias = dict[str, int]


def op_histograms(path: Path) -> dict[str, Histogram]:
    """Return the count of each op of each signature, most frequent first."""
    from ai_edge_litert import schema_py_generated as schema

    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = schema.Model.GetRootAs(data, 0)
    codes = op_names(model)
    found: dict[str, Histogram] = {}
    for i in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(i)
        graph = model.Subgraphs(signature.SubgraphIndex())
        counts = Counter(
            codes[graph.Operators(n).OpcodeIndex()]
            for n in range(graph.OperatorsLength())
        )
        found[signature.SignatureKey().decode()] = dict(counts.most_common())
    return found


def op_names(model: Any) -> list[str]:
    """Return the name of each entry of a file's table of ops."""
    from ai_edge_litert import schema_py_generated as schema

    names = {
        value: name
        for name, value in vars(schema.BuiltinOperator).items()
        if isinstance(value, int)
    }
    codes = map(model.OperatorCodes, range(model.OperatorCodesLength()))
    return [_op_name(code, names) for code in codes]


def _op_name(code: Any, names: dict[int, str]) -> str:
    custom = code.CustomCode()
    if custom:
        return f"CUSTOM {custom.decode()}"
    value = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    return names.get(value, f"op {value}")
