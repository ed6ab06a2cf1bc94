from __future__ import annotations

from typing import Any

import pytest

from tpu_export.runtime.trees import Record, StructureError, flatten, unflatten

LEAF = {"leaf": 0}
TREES: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"leaf": 1}, "b"),
    ({"const": None}, None),
    ({"const": 1.5}, 1.5),
    ({"list": [{"leaf": 0}, {"const": 3}, {"leaf": 1}]}, ["a", 3, "b"]),
    ({"tuple": []}, ()),
    ({"tuple": [{"leaf": 0}]}, ("a",)),
    ({"dict": [["k", {"leaf": 0}], [2, {"list": [{"leaf": 1}]}]]}, {"k": "a", 2: ["b"]}),
    (
        {"record": "Out", "kind": "mapping", "fields": [["loss", {"leaf": 0}], ["b", {"leaf": 1}]]},
        {"loss": "a", "b": "b"},
    ),
)  # fmt: skip


@pytest.mark.parametrize(("tree", "value"), TREES)
def test_there_and_back(tree: dict[str, Any], value: Any) -> None:
    assert unflatten(tree, ["a", "b"]) == value
    found: dict[int, Any] = {}
    flatten(tree, value, "x", lambda i, _, leaf: found.update({i: leaf}))
    assert all(found[i] == "ab"[i] for i in found)


def test_records() -> None:
    tree: dict[str, Any] = {
        "record": "Out", "kind": "dataclass", "fields": [["loss", {"leaf": 0}]],
    }  # fmt: skip
    record = unflatten(tree, [7])
    assert isinstance(record, Record)
    assert record.loss == record["loss"] == 7
    with pytest.raises(AttributeError, match="no field 'other'; there are loss"):
        _ = record.other
    pair = unflatten({**tree, "kind": "namedtuple"}, [7])
    assert type(pair).__name__ == "Out"
    assert pair.loss == pair[0] == 7


def test_places() -> None:
    tree: dict[str, Any] = {"dict": [["a", {"list": [{"leaf": 0}, {"leaf": 1}]}]]}
    places: list[str] = []
    flatten(tree, {"a": [1, 2]}, "x", lambda _, place, __: places.append(place))
    assert places == ["x.a.0", "x.a.1"]


@pytest.mark.parametrize(
    ("tree", "value"),
    [
        ({"const": 1}, True),
        ({"const": 1}, 1.0),
        ({"const": None}, 0),
        ({"list": [LEAF]}, "a"),
        ({"list": [LEAF]}, []),
        ({"dict": [["a", LEAF]]}, {}),
        ({"dict": [["a", LEAF]]}, {"a": 1, "b": 2}),
    ],
)
def test_other_structures(tree: dict[str, Any], value: Any) -> None:
    with pytest.raises(StructureError, match=r"^x "):
        flatten(tree, value, "x", lambda *_: None)


def test_what_is_no_tree() -> None:
    with pytest.raises(StructureError):
        unflatten({"other": 1}, [])
