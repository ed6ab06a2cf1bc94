"""torch's pytree specs as the JSON trees of a signature."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import TypeAlias

from torch.utils._pytree import TreeSpec

from tpu_export.runtime.signature import Tree

Path: TypeAlias = tuple[object, ...]
# How a leaf is described, given its path: {"leaf": index} or {"const": value}.
Named: TypeAlias = list[tuple[str | int, Tree]]
Leaf: TypeAlias = Callable[[Path], Tree]

_SEQUENCES = {list: "list", deque: "list", tuple: "tuple"}


def describe(spec: TreeSpec, leaf: Leaf, path: Path = ()) -> Tree:
    """Return the tree of a pytree spec; `leaf` is called once a leaf, in leaf order."""
    if spec.is_leaf():
        return leaf(path)
    keys = child_keys(spec)
    trees = [
        describe(child, leaf, (*path, key))
        for key, child in zip(keys, spec.children(), strict=True)
    ]
    if spec.type in _SEQUENCES:
        return {_SEQUENCES[spec.type]: trees}
    named = list(zip(keys, trees, strict=True))
    if spec.type in (dict, OrderedDict, defaultdict):
        return {"dict": _pairs(named)}
    return _record(spec, named)


def child_keys(spec: TreeSpec) -> list[str | int]:
    """Return the key of each child: dict keys, field names, else indices."""
    context = spec.context
    if spec.type is defaultdict:
        context = context[1]
    if _is_namedtuple(spec):
        context = context._fields
    elif _is_return_type(spec):
        context = spec.type.__match_args__
    elif _is_dataclass(spec):
        context = context[0]
    if _are_keys(context, spec.num_children):
        return [key if isinstance(key, int) else str(key) for key in context]
    return list(range(spec.num_children))


def _are_keys(context: object, count: int) -> bool:
    if not isinstance(context, Sequence) or isinstance(context, str):
        return False
    return len(context) == count and not any(isinstance(k, list) for k in context)


def _is_namedtuple(spec: TreeSpec) -> bool:
    return hasattr(spec.context, "_fields")


def _is_return_type(spec: TreeSpec) -> bool:
    """Whether it is one of torch.return_types: a tuple with names, as torch.max() returns."""
    return issubclass(spec.type, tuple) and hasattr(spec.type, "n_sequence_fields")


def _is_dataclass(spec: TreeSpec) -> bool:
    """Whether register_dataclass flattened it: context = [names, names of None]."""
    context = spec.context
    return (
        is_dataclass(spec.type)
        and isinstance(context, Sequence)
        and len(context) == 2
        and all(isinstance(part, list) for part in context)
    )


def _pairs(named: Named) -> list[list[object]]:
    return [[key, tree] for key, tree in named]


def _record(spec: TreeSpec, named: Named) -> Tree:
    if _is_namedtuple(spec) or _is_return_type(spec):
        made = spec.context if _is_namedtuple(spec) else spec.type
        return {
            "record": made.__name__,
            "kind": "namedtuple",
            "fields": _pairs(named),
        }
    if not _is_dataclass(spec):
        return {
            "record": spec.type.__name__,
            "kind": "mapping",
            "fields": _pairs(named),
        }
    known = {str(name): tree for name, tree in named}
    nones: dict[str, Tree] = {name: {"const": None} for name in spec.context[1]}
    order = [field.name for field in fields(spec.type)]
    merged = {**known, **nones}
    return {
        "record": spec.type.__name__,
        "kind": "dataclass",
        "fields": [[name, merged[name]] for name in order if name in merged],
    }
