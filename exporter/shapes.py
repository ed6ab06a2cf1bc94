"""What dynamic_shapes says of each leaf of the inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

import torch
from torch.export import AdditionalInputs, Dim, ShapesCollection
from torch.utils._pytree import (
    BUILTIN_TYPES,
    SUPPORTED_NODES,
    TreeSpec,
    _get_node_type,
    tree_map,
    tree_structure,
)

from tpu_export.exporter.refusals import DimRangeError

Shapes: TypeAlias = Mapping[str, object] | Sequence[object]


def plain_shapes(
    shapes: Shapes | ShapesCollection | AdditionalInputs | None,
    module: torch.nn.Module,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> Shapes | None:
    """Return dynamic_shapes as a dict or sequence."""
    if isinstance(shapes, ShapesCollection | AdditionalInputs):
        convert = cast(Callable[..., Shapes], shapes.dynamic_shapes)
        return convert(module, args, kwargs)
    return shapes


def asked_leaves(
    bound: inspect.BoundArguments,
    kwargs: Mapping[str, object],
    shapes: Shapes | None,
) -> list[object]:
    """Return what dynamic_shapes says of each leaf of (args, kwargs), in leaf order."""
    asked = _by_name(bound, shapes)
    positional: list[object] = []
    keyword: dict[str, list[object]] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        part = asked.get(name)
        if kind is inspect.Parameter.VAR_KEYWORD:
            parts = part if isinstance(part, Mapping) else asked
            keyword |= {key: leaf_shapes(v, parts.get(key)) for key, v in value.items()}
        elif kind is not inspect.Parameter.VAR_POSITIONAL and name in kwargs:
            keyword[name] = leaf_shapes(value, part)
        else:
            positional += leaf_shapes(value, part)
    return [*positional, *(leaf for name in kwargs for leaf in keyword[name])]


def _by_name(bound: inspect.BoundArguments, shapes: Shapes | None) -> dict[str, object]:
    if isinstance(shapes, Mapping):
        return dict(shapes)
    return dict(zip(bound.arguments, shapes or (), strict=False))


def leaf_shapes(value: object, asked: object) -> list[object]:
    """Return what dynamic_shapes says of each leaf of `value`, in leaf order.

    A class that torch flattens takes the list of its children, as torch has it.
    """
    spec: TreeSpec = tree_structure(value)
    if spec.is_leaf():
        return [asked]
    if asked is None:
        return [None] * spec.num_leaves
    children, context = SUPPORTED_NODES[_get_node_type(value)].flatten_fn(value)
    if isinstance(asked, Mapping):
        keys = context if isinstance(context, list) else range(len(children))
        parts = [asked.get(key) for key in keys]
    else:
        parts = list(asked) if isinstance(asked, Sequence) else [None] * len(children)
    return [
        leaf
        for child, part in zip(children, parts, strict=True)
        for leaf in leaf_shapes(child, part)
    ]


def check_axes(bound: inspect.BoundArguments, shapes: Shapes | None) -> None:
    """Hold dynamic_shapes to the example inputs.

    Raises:
        DimRangeError: no such axis, no Dim, or a size outside of its range.
    """
    asked = _by_name(bound, shapes)
    for name, value in bound.arguments.items():
        _check(name, value, asked.get(name))


def _check(name: str, value: object, asked: object) -> None:
    parts: dict[object, object] = {}
    if isinstance(asked, Mapping):
        parts = dict(asked)
    elif isinstance(asked, list | tuple):
        parts = dict(enumerate(asked))
    for key, part in parts.items():
        if isinstance(value, torch.Tensor) and isinstance(key, int):
            _check_axis(name, value, key, part)
        elif isinstance(value, Mapping) and key in value:
            _check(f"{name}.{key}", value[key], part)
        elif isinstance(value, list | tuple) and key in range(len(value)):
            _check(f"{name}.{key}", value[cast(int, key)], part)


def _check_axis(name: str, value: torch.Tensor, axis: int, dim: object) -> None:
    if isinstance(dim, str):
        raise DimRangeError(
            f"dynamic_shapes has the text {dim!r} for axis {axis} of {name}",
            hint=f"write torch.export.Dim({dim!r})",
        )
    if axis >= value.dim():
        raise DimRangeError(
            f"dynamic_shapes has axis {axis} of {name}, whose example has only {value.dim()}",
            hint="axes count from 0",
        )
    if type(dim) is Dim and not dim.min <= value.shape[axis] <= dim.max:
        raise DimRangeError(
            f"axis {axis} of {name} is {value.shape[axis]} in the example, outside of "
            f"{dim.__name__} = {dim.min} … {dim.max}",
            hint="give an example of a size in the range, or another range",
        )


def for_torch(
    bound: inspect.BoundArguments, shapes: Shapes | None
) -> dict[str, object] | tuple[object, ...] | None:
    """Complete dynamic_shapes: torch wants every parameter, and None for each leaf."""
    if shapes is None:
        return None
    if isinstance(shapes, Mapping):
        absent = {name: None for name in bound.arguments if name not in shapes}
        return {
            name: _spread(bound.arguments.get(name), part)
            for name, part in {**shapes, **absent}.items()
        }
    parts = zip(bound.arguments.values(), shapes, strict=False)
    known = tuple(_spread(value, part) for value, part in parts)
    return (*known, *shapes[len(known) :])


def _spread(value: object, part: object) -> object:
    """Give each leaf of a container its own None where the user gave one for all."""
    spec: TreeSpec = tree_structure(value)
    if part is not None or spec.is_leaf():
        return part
    if spec.type in BUILTIN_TYPES:
        return tree_map(lambda _: None, value, is_leaf=_is_registered_class)
    return [_spread(child, None) for child in _children(value)]


def _is_registered_class(value: object) -> bool:
    kind = _get_node_type(value)
    return kind in SUPPORTED_NODES and kind not in BUILTIN_TYPES


def _children(value: object) -> list[object]:
    return list(SUPPORTED_NODES[_get_node_type(value)].flatten_fn(value)[0])
