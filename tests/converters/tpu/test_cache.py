from __future__ import annotations

from pathlib import Path

import pytest

from tpu_export.converters.tpu.cache import (
    cache_directory,
    cache_key,
    read_entry,
    write_entry,
)

PARTS = {"main": b"\0\n{}", "prepare": b"", "result": b"{}"}
KEY = "ab" * 32


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_entry(tmp_path, KEY) is None
    write_entry(tmp_path, KEY, PARTS)
    assert read_entry(tmp_path, KEY) == PARTS
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [KEY]


@pytest.mark.parametrize("position", [0, 5, 40, 100, -1])
def test_a_damaged_entry_is_absent_and_removed(tmp_path: Path, position: int) -> None:
    write_entry(tmp_path, KEY, PARTS)
    path = tmp_path / KEY[:2] / KEY
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    assert read_entry(tmp_path, KEY) is None
    assert not path.exists()


@pytest.mark.parametrize("size", [0, 10, 100])
def test_a_short_entry_is_absent(tmp_path: Path, size: int) -> None:
    write_entry(tmp_path, KEY, PARTS)
    path = tmp_path / KEY[:2] / KEY
    path.write_bytes(path.read_bytes()[:size])
    assert read_entry(tmp_path, KEY) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write_entry(tmp_path / "file", KEY, PARTS)
    assert read_entry(tmp_path / "file", KEY) is None


@pytest.mark.parametrize(
    ("facts", "modules"),
    [
        ({"a": 2}, {"main": b"x"}),
        ({"a": 1}, {"main": b"y"}),
        ({"a": 1}, {"main": b"x", "prepare": b""}),
        ({"a": 1, "b": None}, {"main": b"x"}),
    ],
)
def test_the_key_depends_on_everything(
    facts: dict[str, object], modules: dict[str, bytes]
) -> None:
    assert cache_key(facts, modules) != cache_key({"a": 1}, {"main": b"x"})


def test_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TPU_EXPORT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_directory() == Path("/x/tpu-export")
    monkeypatch.setenv("TPU_EXPORT_CACHE", "/own")
    assert cache_directory() == Path("/own")
