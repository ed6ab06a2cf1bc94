"""Structured values to flat leaves and back, as a signature's trees say."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tpu_export.runtime.signature import Tree


class Record(dict[Any, Any]):
    """A result with fields: by key, by attribute, and in order when iterated as values.

    Stands for the dataclasses and output classes of the model, which a serving process
    does not have.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            message = f"no field {name!r}; there are {', '.join(map(str, self))}"
            raise AttributeError(message) from None


class StructureError(ValueError):
    """A value that has not the structure of the tree; the message names the place."""


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """Return the structure with its leaves in place."""
    match tree:
        case {"leaf": int(index)}:
            return leaves[index]
        case {"const": value}:
            return value
        case {"list": list(children)}:
            return [unflatten(child, leaves) for child in children]
        case {"tuple": list(children)}:
            return tuple(unflatten(child, leaves) for child in children)
        case {"dict": list(items)}:
            return {key: unflatten(child, leaves) for key, child in items}
        case {"record": str(name), "kind": kind, "fields": list(items)}:
            values = {key: unflatten(child, leaves) for key, child in items}
            if kind == "namedtuple":
                return namedtuple(name, values)(**values)
            return Record(values)
    message = f"not a tree: {tree}"
    raise StructureError(message)


def flatten(
    tree: Tree, value: Any, place: str, put: Callable[[int, str, Any], None]
) -> None:
    """Call put(index, place, leaf) for every leaf of a value.

    Raises:
        StructureError: the value lacks a part, has one too many, or another constant.
    """
    match tree:
        case {"leaf": int(index)}:
            put(index, place, value)
        case {"const": constant}:
            if value is not constant and not _equal(value, constant):
                message = f"{place} must be {constant!r}, as at export"
                raise StructureError(message)
        case {"list": list(children)} | {"tuple": list(children)}:
            for i, child in enumerate(children):
                flatten(
                    child, _item(value, i, len(children), place), f"{place}.{i}", put
                )
        case {"dict": list(items)} | {"fields": list(items)}:
            _check_keys(value, [key for key, _ in items], place)
            for key, child in items:
                flatten(child, _field(value, key), f"{place}.{key}", put)


def _equal(value: Any, constant: Any) -> bool:
    return type(value) is type(constant) and bool(value == constant)


def _item(value: Any, index: int, count: int, place: str) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != count:
        message = f"{place} must be a sequence of {count}"
        raise StructureError(message)
    return value[index]


def _check_keys(value: Any, keys: Sequence[Any], place: str) -> None:
    if isinstance(value, Mapping):
        extra, missing = set(value) - set(keys), set(keys) - set(value)
    else:
        extra, missing = set(), {k for k in keys if not hasattr(value, str(k))}
    if extra or missing:
        words = [f"lacks {sorted(map(str, missing))}"] if missing else []
        words += [f"has unknown {sorted(map(str, extra))}"] if extra else []
        message = f"{place} {' and '.join(words)}"
        raise StructureError(message)


def _field(value: Any, key: Any) -> Any:
    return value[key] if isinstance(value, Mapping) else getattr(value, str(key))
