"""Sizes 0 and 1, which torch leaves open: tried, where the graph may differ from the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import sympy
import torch
from torch._subclasses import FakeTensor
from torch.utils._pytree import tree_leaves, tree_map_only

from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.converters.stablehlo.refine import refined
from tpu_export.exporter.buckets import unmet
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.questions import Question
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.exporter.restored import restored
from tpu_export.exporter.second_inputs import resized


def settle(
    captured: Captured,
    asked: Sequence[Question] = (),
    promised: AbstractSet[str] = frozenset(),
) -> Captured:
    """Return the capture with the sizes 0 and 1 allowed only where it holds for them.

    A dimension may be 0 where its Dim says so and has a maximum (min=0 alone is what
    every Dim says), and the model takes it.

    Args:
        captured: as torch traced it.
        asked: what the model asked of sizes meanwhile.
        promised: names of the dimensions that the user said may be 1.

    Raises:
        DimRangeError: a promised 1 does not hold.
    """
    empty = {n for n in _maybe_empty(captured) if _agrees(captured, {n: 0})}
    broken: dict[str, None] = {}
    for names, question in _other_at_one(captured, asked).items():
        if _agrees(captured, dict.fromkeys(names, 1)):
            continue
        if promised >= set(names):
            raise DimRangeError(
                f"the model asks about {' and '.join(names)} at {question.place} and "
                "does something else at size 1; the graph holds for other sizes only",
                hint=f"give Dim({names[0]!r}) min=2 and export another signature for 1, "
                "or compute both with torch.where or torch.cond",
            )
        broken[f"{'*'.join(names)} != 1"] = None
    signature = captured.signature
    dims = tuple(
        replace(dim, minimum=0) if dim.name in empty else dim for dim in signature.dims
    )
    constraints = tuple(dict.fromkeys((*signature.constraints, *broken)))
    return replace(
        captured, signature=replace(signature, dims=dims, constraints=constraints)
    )


def refinable(program: LoweredProgram, example: Mapping[str, int]) -> LoweredProgram:
    """Return a program whose dimensions may be 0 only where XLA can make it of that size."""
    dims = tuple(
        dim
        if dim.minimum or _refines(program, {**example, dim.name: 0})
        else replace(dim, minimum=1)
        for dim in program.signature.dims
    )
    return replace(program, signature=replace(program.signature, dims=dims))


def _refines(program: LoweredProgram, sizes: Mapping[str, int]) -> bool:
    counted = {dim.name: dim.minimum for dim in program.signature.counted}
    main = program.main
    try:
        refined(main.module("cpu"), main.spec, {**counted, **sizes})
    except Exception:  # JAX, MLIR and XLA share no base
        return False
    return True


def _maybe_empty(captured: Captured) -> list[str]:
    """Return the dimensions whose range of torch's is 0 to some maximum."""
    ranges = {str(s): r for s, r in captured.program.range_constraints.items()}
    maxima = {dim.name: dim.maximum for dim in captured.signature.dims}
    return [
        name
        for symbol, name in captured.symbol_names.items()
        if symbol in ranges
        and ranges[symbol].lower == 0
        and isinstance(ranges[symbol].upper, sympy.Integer)
        and ranges[symbol].upper == maxima[name]
    ]


def _other_at_one(
    captured: Captured, asked: Sequence[Question]
) -> dict[tuple[str, ...], Question]:
    """Return a question with another answer where a dimension is 1, or where all are."""
    by_name = {name: symbol for symbol, name in captured.symbol_names.items()}
    example = captured.example_dims()
    may = [dim.name for dim in captured.signature.dims if dim.minimum <= 1]
    found: dict[tuple[str, ...], Question] = {}
    for names in [*((name,) for name in may), tuple(may)]:
        sizes = example | dict.fromkeys(names, 1)
        values = {by_name[name]: size for name, size in sizes.items()}
        differing = [q for q in asked if q.differs(values)]
        if differing and not unmet(captured.signature, sizes):
            found.setdefault(names, differing[0])
    return found


def _agrees(captured: Captured, edge: Mapping[str, int]) -> bool:
    """Whether graph and model give the same where dimensions have these sizes.

    Not where a call cannot have them, the model raises, or its weights have no values.
    """
    sizes = {**captured.example_dims(), **edge}
    inputs = resized(captured, captured.example, sizes)
    held = [*tree_leaves(inputs), *captured.program.state_dict.values()]
    if unmet(captured.signature, sizes) or any(map(_valueless, held)):
        return False
    graph = captured.program.module(check_guards=False)
    try:
        expected = _called(captured, captured.eager, inputs)
    except Exception:  # whatever the user's model raises
        return False
    try:
        return _same(_called(captured, graph, inputs), expected)
    except Exception:  # torch documents no set of errors
        return False


def _valueless(value: object) -> bool:
    return isinstance(value, torch.Tensor) and (
        value.is_meta or isinstance(value, FakeTensor)
    )


def _called(
    captured: Captured, function: Callable[..., object], inputs: Any
) -> list[object]:
    args, kwargs = tree_map_only(torch.Tensor, lambda t: t.detach().clone(), inputs)
    state = dict(captured.program.named_buffers())
    with (
        restored(function, _distinct(state)),
        torch.random.fork_rng(devices=()),
        torch.no_grad(),
    ):
        torch.manual_seed(0)
        return tree_leaves((function(*args, **kwargs), args, kwargs))


def _distinct(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {str(id(tensor)): tensor for tensor in tensors.values()}


def _same(got: Sequence[object], expected: Sequence[object]) -> bool:
    pairs = list(zip(got, expected, strict=False))
    return len(got) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a, b, equal_nan=True)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
        else type(a) is type(b) and a == b
        for a, b in pairs
    )
