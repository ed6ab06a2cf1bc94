from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from tpu_export.runtime.codec import FieldError, decode, encode


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[int | str, ...]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    kind: Literal["a", "b"]
    maybe: Inner | None
    table: dict[str, Inner]
    free: object
    orders: tuple[tuple[int, ...] | None, ...]


VALUE = Outer(
    Inner("n", (1, "b")), "a", None, {"k": Inner("m", ())}, {"x": [1]}, ((1, 0), None)
)
JSON: dict[str, Any] = {
    "inner": {"name": "n", "sizes": [1, "b"]},
    "kind": "a",
    "maybe": None,
    "table": {"k": {"name": "m", "sizes": []}},
    "free": {"x": [1]},
    "orders": [[1, 0], None],
}


def test_there_and_back() -> None:
    assert encode(VALUE) == JSON
    assert decode(Outer, json.loads(json.dumps(encode(VALUE)))) == VALUE
    both = {**JSON, "maybe": {"name": "z", "sizes": [2]}}
    assert decode(Outer, both).maybe == Inner("z", (2,))


@dataclass(frozen=True)
class Longer:
    name: str
    more: tuple[str, ...] = field(default=(), metadata={"optional": True})


def test_an_optional_field_is_there_where_it_is_not_empty() -> None:
    for value, there in (
        (Longer("n"), {"name": "n"}),
        (Longer("n", ("a",)), {"name": "n", "more": ["a"]}),
    ):
        assert encode(value) == there
        assert decode(Longer, json.loads(json.dumps(there))) == value
    with pytest.raises(FieldError, match="has empty more"):
        decode(Longer, {"name": "n", "more": []})


WRONG: tuple[tuple[Any, str], ...] = (
    ([], "the manifest is no object"),
    ({**JSON, "more": 1}, "has unknown more"),
    ({k: v for k, v in JSON.items() if k != "kind"}, "lacks kind"),
    ({**JSON, "kind": "c"}, "kind is 'c'"),
    ({**JSON, "kind": ["a"]}, "kind is"),
    ({**JSON, "inner": None}, "inner is no object"),
    ({**JSON, "inner": {"name": 1, "sizes": []}}, "inner.name is no str"),
    ({**JSON, "inner": {"name": "n", "sizes": {}}}, "inner.sizes is no list"),
    ({**JSON, "inner": {"name": "n", "sizes": [1, True]}}, r"inner.sizes\[1\] is no"),
    ({**JSON, "inner": {"name": "n", "sizes": [1.0]}}, r"inner.sizes\[0\] is no"),
    ({**JSON, "maybe": 3}, "maybe is no object"),
    ({**JSON, "table": []}, "table is no object"),
    ({**JSON, "table": {"k": {}}}, "table.k lacks name, sizes"),
    ({**JSON, "orders": [[None]]}, r"orders\[0\]\[0\] is no int"),
)


@pytest.mark.parametrize(("value", "what"), WRONG)
def test_what_does_not_fit_is_named(value: Any, what: str) -> None:
    with pytest.raises(FieldError, match=what):
        decode(Outer, value)
