"""A rule's parameters are its overload's: names of keywords, places, defaults.

An exported graph leaves out arguments that equal the schema's default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

from tpu_export.converters.stablehlo.ops import find_rule, registered_ops

aten = torch.ops.aten
INT64 = 4  # torch.int64 as schemas write it; rules take None for it
SAME = [("valid", (0,)), (INT64, None), ([], ())]


def complaints(op: OpOverload, rule: Callable[..., Any]) -> Iterator[str]:
    parameters = list(inspect.signature(rule).parameters.values())
    kinds = {p.kind for p in parameters}
    named = {p.name: p for p in parameters}
    places = iter(
        p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )
    for argument in op._schema.arguments:
        if argument.kwarg_only:
            found = named.get(argument.name)
            open_ended = inspect.Parameter.VAR_KEYWORD in kinds
        else:
            found = next(places, None)
            open_ended = inspect.Parameter.VAR_POSITIONAL in kinds
        if found is None:
            if not open_ended:
                yield f"{argument.name} is missing"
        elif argument.has_default_value() and not same(
            argument.default_value, found.default
        ):
            yield f"{argument.name} is {found.default}, not {argument.default_value}"


def same(schema: Any, rule: Any) -> bool:
    if isinstance(schema, list) and schema:
        return set(schema) == set(rule if isinstance(rule, list | tuple) else [rule])
    return schema == rule or (schema, rule) in SAME


@pytest.mark.parametrize("target", ["xla", "litert"])
def test_rules_follow_their_schemas(target: Any) -> None:
    ours = ("aten", "quantized_decomposed")
    wrong = {
        str(op): found
        for op in registered_ops()
        if isinstance(op, OpOverload) and op.namespace in ours
        if (rule := find_rule(op, target)) is not None
        if (found := list(complaints(op, rule)))
    }
    assert wrong == {}


def test_a_wrong_default_is_seen() -> None:
    def cross(x: Any, other: Any, dim: int | None = -1) -> None: ...

    def sum_(x: Any) -> None: ...

    assert list(complaints(aten.cross.default, cross)) == ["dim is -1, not None"]
    assert list(complaints(aten.sum.default, sum_)) == ["dtype is missing"]
