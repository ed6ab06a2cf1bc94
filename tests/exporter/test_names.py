from __future__ import annotations

import pytest

from tpu_export.exporter.names import dotted, identifier, unique


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a", "a_1"]),
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
        (["a", "a", "a_1"], ["a", "a_2", "a_1"]),
        (["a_1", "a", "a"], ["a_1", "a", "a_2"]),
    ],
)
def test_unique_keeps_first_names(names: list[str], expected: list[str]) -> None:
    assert unique(names) == expected


@pytest.mark.parametrize(
    ("path", "expected"), [(("cache", 0, "key"), "cache.0.key"), (("x",), "x")]
)
def test_dotted(path: tuple[object, ...], expected: str) -> None:
    assert dotted(path) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x_0", "x_0"), ("cache.0.key", "cache_0_key"), ("1a", "_1a"), ("é", "_")],
)
def test_identifier(name: str, expected: str) -> None:
    assert identifier(name) == expected
