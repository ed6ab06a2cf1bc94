"""Typed values to JSON and strictly back: a wrong, missing or extra field is named.

A field whose metadata says "optional" is written only where it is not empty.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any


class FieldError(ValueError):
    """A value that does not fit its type; the message begins with its path."""


def encode(value: Any) -> Any:
    """Return dataclasses, tuples and mappings as JSON-able values."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = [(f, getattr(value, f.name)) for f in fields(value)]
        return {f.name: encode(v) for f, v in pairs if v or not _is_optional(f)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


def decode(kind: Any, value: Any, path: str = "") -> Any:
    """Return `value` as the type says.

    Raises:
        FieldError: naming the path of what does not fit.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, value, path)
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments, value, path)
    if origin is typing.Literal:
        _require(value in arguments, path, f"is {value!r}, not one of {arguments}")
        return value
    if origin is tuple:
        _require(isinstance(value, list), path, "is no list")
        return tuple(
            decode(arguments[0], v, f"{path}[{i}]") for i, v in enumerate(value)
        )
    if origin is dict:
        _require(isinstance(value, dict), path, "is no object")
        return {k: decode(arguments[1], v, f"{path}.{k}") for k, v in value.items()}
    if kind is object or kind is Any:
        return value
    _require(type(value) is kind, path, f"is no {getattr(kind, '__name__', kind)}")
    return value


def _record(kind: type, value: Any, path: str) -> Any:
    _require(isinstance(value, dict), path, "is no object")
    hints = _hints(kind)
    optional = {f.name for f in fields(kind) if _is_optional(f)}
    missing, extra = hints.keys() - value.keys(), value.keys() - hints.keys()
    missing -= optional
    _require(not missing, path, f"lacks {', '.join(sorted(missing))}")
    _require(not extra, path, f"has unknown {', '.join(sorted(extra))}")
    empty = sorted(n for n in optional & value.keys() if not value[n])
    _require(not empty, path, f"has empty {', '.join(empty)}")
    given = {n: h for n, h in hints.items() if n in value}
    return kind(**{n: decode(h, value[n], f"{path}.{n}") for n, h in given.items()})


def _is_optional(field: Field[Any]) -> bool:
    return bool(field.metadata.get("optional"))


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def _one_of(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    others = [kind for kind in kinds if kind is not type(None)]
    for kind in others[:-1]:
        try:
            return decode(kind, value, path)
        except FieldError:
            continue
    return decode(others[-1], value, path)


def _require(condition: bool, path: str, what: str) -> None:
    if not condition:
        message = f"{path.lstrip('.') or 'the manifest'} {what}"
        raise FieldError(message)
