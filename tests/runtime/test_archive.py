from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tpu_export.runtime.archive import (
    ALIGNMENT,
    MAX_ENTRIES,
    ArchiveWriter,
    ArtifactCorruptedError,
    read_members,
)


def written(*entries: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    for name, payload in entries:
        writer.add(name, [payload[:1], memoryview(payload[1:])])
    writer.finish()
    return file.getvalue()


SAMPLES: tuple[tuple[tuple[str, bytes], ...], ...] = (
    (),
    (("a", b""),),
    (("a", b"x"), ("b/c.d", b"y" * 5000), ("e=1+2-3", b"")),
    (("a/b/c/d/e/f/g/h", b"8 parts"),),
    (("n" * 512, b"longest name"),),
    tuple((f"n{i}", bytes([i])) for i in range(40)),
)


@pytest.mark.parametrize("entries", SAMPLES)
def test_what_is_written_is_read(entries: tuple[tuple[str, bytes], ...]) -> None:
    data = written(*entries)
    members = read_members(memoryview(data))
    assert list(members) == [name for name, _ in entries]
    for name, payload in entries:
        member = members[name]
        assert member.offset % ALIGNMENT == 0
        assert data[member.offset : member.offset + member.size] == payload


@pytest.mark.parametrize("entries", SAMPLES)
def test_python_reads_it_as_a_zip(entries: tuple[tuple[str, bytes], ...]) -> None:
    with zipfile.ZipFile(io.BytesIO(written(*entries))) as archive:
        assert archive.testzip() is None
        assert [(n, archive.read(n)) for n in archive.namelist()] == [*entries]


def test_the_bytes_depend_on_nothing_else() -> None:
    assert written(("a", b"1"), ("b", b"2")) == written(("a", b"1"), ("b", b"2"))


BAD_NAMES = (
    "", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a/.b", "-a", "a b", "a\n", "é", "a\\b",
    "a:b", "a\0", "a/b/c/d/e/f/g/h/i", "n" * 513, "C:/a", "~a",
)  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_outside_the_grammar_are_not_written(name: str) -> None:
    with pytest.raises(ValueError, match="entry name"):
        ArchiveWriter(io.BytesIO()).add(name, [])


def test_a_name_is_written_once() -> None:
    writer = ArchiveWriter(io.BytesIO())
    writer.add("a", [])
    with pytest.raises(ValueError, match="repeated"):
        writer.add("a", [])


def test_too_many_entries_are_refused_before_they_are_read() -> None:
    import struct

    data = bytearray(written())
    for at in (24, 32):
        struct.pack_into("<Q", data, at, MAX_ENTRIES + 1)
    with pytest.raises(ArtifactCorruptedError, match=r"rule 2\.2"):
        read_members(memoryview(bytes(data)))


def test_an_ordinary_zip_is_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("manifest.json", "{}" * 100)
    with pytest.raises(ArtifactCorruptedError) as caught:
        read_members(memoryview(file.getvalue()))
    assert caught.value.code == "TPX-0401"
    assert caught.value.rule.startswith("2.")


def zipped(tmp_path: Path) -> bytes:
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as file:
        file.writestr("archive_format", "pt2" * 100)
    return (tmp_path / "m.pt2").read_bytes()


def rezipped(tmp_path: Path, folder: str = "") -> bytes:
    path = tmp_path / "again.tpuexe"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("programs/forward.mlirbc", "manifest.json"):
            file.writestr(folder + name, "x" * 300)
    return path.read_bytes()


def added_to(tmp_path: Path) -> bytes:
    path = tmp_path / "more.tpuexe"
    path.write_bytes(
        written(("programs/forward.mlirbc", b"x"), ("manifest.json", b"{}"))
    )
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("notes.txt", "mine")
    return path.read_bytes()


CHANGED = "a ZIP tool has changed this .tpuexe, or has packed its entries again"
FOREIGN: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "a ZIP": (zipped, "no .tpuexe; it looks like another ZIP, such as a .pt2"),
    "a .tflite": (
        lambda _: b"\x1c\0\0\0TFL3" + bytes(200),
        "no .tpuexe; it looks like a .tflite",
    ),
    "text": (lambda _: b"import torch\n" * 20, "no .tpuexe; it looks like a file of"),
    "zipped again": (rezipped, CHANGED),
    "its folder zipped": (lambda path: rezipped(path, "m/"), CHANGED),
    "added to": (added_to, CHANGED),
    "a cut .tpuexe": (
        lambda _: written(("a", b"x"))[:-1],
        "corrupted artifact: the file is cut short",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_never_was_a_tpuexe(tmp_path: Path, name: str) -> None:
    data, words = FOREIGN[name]
    with pytest.raises(ArtifactCorruptedError, match=words) as info:
        read_members(memoryview(data(tmp_path)))
    assert ("copy it again" in info.value.hint) is (name == "a cut .tpuexe")


DATA = written(("a", b"x" * 300), ("b", b"y"))
SAID = {
    "empty": (b"", "2.1", "the file is cut short: it has no end record"),
    "cut in a header": (DATA[:3], "2.1", "the file is cut short: it has no end record"),
    "cut in a payload": (DATA[:4200], "2.1", "the file is cut short: it has no end record"),
    "cut by a byte": (DATA[:-1], "2.1", "the file is cut short: it has no end record"),
    "a byte more": (DATA + b"\0", "2.1", "1 byte follows the archive's end"),
    "a line more": (DATA + b"x" * 500, "2.1", "500 bytes follow the archive's end"),
    "its end again": (
        DATA + DATA[-98:], "2.7", "98 bytes too many before the archive's end record",
    ),
    "less inside": (
        DATA[:100] + DATA[110:], "2.7", "10 bytes are missing before the archive's end record",
    ),
    "a byte less": (
        DATA[:100] + DATA[101:], "2.7", "1 byte is missing before the archive's end record",
    ),
    "changed": (DATA[:-1] + b"x", "2.1", "bad end record"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_is_wrong_at_the_end_is_said(name: str) -> None:
    data, rule, said = SAID[name]
    with pytest.raises(ArtifactCorruptedError) as caught:
        read_members(memoryview(data))
    assert (caught.value.rule, caught.value.what) == (rule, said)
