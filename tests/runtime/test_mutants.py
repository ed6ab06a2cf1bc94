"""Two readers, one verdict: on thousands of damaged files both accept or both refuse."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpu_export.runtime.archive import ArchiveWriter, ArtifactCorruptedError
from tpu_export.runtime.artifact import Artifact, ArtifactVersionError
from tpu_export.runtime.weights import Weights

Make = Callable[..., Path]
_spec = importlib.util.spec_from_file_location(
    "strict_reader", Path(__file__).with_name("strict_reader.py")
)
assert _spec is not None
assert _spec.loader is not None
strict: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(strict)


def ours(path: Path) -> str:
    """Return "ok", or the rule that our reader names; anything else it raises is a bug."""
    try:
        artifact = Artifact(path)
        artifact.verify()
        for name in artifact.names:
            if name.endswith(".safetensors"):
                artifact.tensors(name)
        Weights(artifact)
    except ArtifactCorruptedError as error:
        return error.rule
    except ArtifactVersionError:
        return "version"
    return "ok"


def theirs(data: bytes) -> str:
    try:
        strict.check(data)
    except strict.Broken as error:
        return str(error.args[0])
    return "ok"


class Judge:
    """Asks both readers and counts."""

    def __init__(self, path: Path) -> None:
        self.path, self.accepted, self.refused = path, 0, 0
        self.rules: set[str] = set()

    def __call__(self, data: bytes, what: str) -> str:
        self.path.write_bytes(data)
        mine, other = ours(self.path), theirs(data)
        assert (mine == "ok") == (other == "ok"), f"{what}: {mine} but {other}"
        self.rules.add(mine)
        self.accepted += mine == "ok"
        self.refused += mine != "ok"
        return mine


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return Judge(tmp_path / "mutant.tpuexe")


@pytest.fixture(
    params=[
        "add",
        "linear",
        "counter",
        "dynamic",
        "constrained",
        "ranged",
        "engines",
        "two",
    ]
)
def data(request: pytest.FixtureRequest, artifact: Make) -> bytes:
    return artifact(request.param).read_bytes()


def rebuilt(entries: Iterable[tuple[str, bytes]], path: Path) -> bytes:
    """Return an archive of any entries: rules of section 2 hold, others perhaps not."""
    with path.open("w+b") as file:
        writer = ArchiveWriter(file)
        for name, payload in entries:
            writer.add(name, [payload])
        writer.finish()
    return path.read_bytes()


def entries_of(data: bytes) -> dict[str, bytes]:
    return dict(strict.read_archive(data))


def with_manifest(data: bytes, manifest: Any, path: Path) -> bytes:
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    return rebuilt({**entries_of(data), "manifest.json": text}.items(), path)


def test_whole_files_pass(data: bytes, judge: Judge) -> None:
    assert judge(data, "whole") == "ok"


def structure(data: bytes) -> Iterator[int]:
    """Yield the places of bytes that are headers, manifest or directory, and some others."""
    offset = 0
    for name, payload in entries_of(data).items():
        start = offset + 30 + len(name)
        yield from range(offset, start + 30)
        aligned = (start + 24 + 4095) // 4096 * 4096
        yield from range(start + 30, aligned, 397)
        step = 1 if name == "manifest.json" else 97
        yield from range(aligned, aligned + len(payload), step)
        offset = aligned + len(payload)
    yield from range(offset, len(data))


def test_every_flipped_bit_is_refused(data: bytes, judge: Judge) -> None:
    seeded = random.Random(0)
    for place in structure(data):
        mutant = bytearray(data)
        mutant[place] ^= 1 << seeded.randrange(8)
        assert judge(bytes(mutant), f"bit at {place}") != "ok"
    assert judge.refused > 1000


def test_truncated_and_extended_files_are_refused(data: bytes, judge: Judge) -> None:
    lengths = [*range(0, len(data), 211), *range(len(data) - 120, len(data))]
    for length in lengths:
        assert judge(data[:length], f"cut to {length}") != "ok"
    for more in (b"\0", b"PK\5\6" + b"\0" * 18, b"\0" * 98, data[-98:], data):
        assert judge(data + more, "appended") != "ok"
        assert judge(more + data, "prepended") != "ok"


def records(data: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Return payload part, central records, end records."""
    at = len(data) - 98
    count, _, _, place = struct.unpack_from("<QQQQ", data, at + 24)
    found, position = [], place
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, position + 28)
        found.append(data[position : position + 74 + length])
        position += 74 + length
    return data[:place], found, data[at:]


def joined(body: bytes, central: list[bytes]) -> bytes:
    directory = b"".join(central)
    count, place, end = len(central), len(body), len(body) + len(directory)
    wide = b"PK\6\6" + struct.pack(
        "<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, len(directory), place
    )
    locator = b"PK\6\7" + struct.pack("<IQI", 0, end, 1)
    last = b"PK\5\6" + b"\0" * 4 + b"\xff" * 12 + b"\0\0"
    return body + directory + wide + locator + last


def test_other_directories_are_refused(data: bytes, judge: Judge) -> None:
    body, central, _ = records(data)
    assert judge(joined(body, central), "same") == "ok"
    for i in range(len(central)):
        without = central[:i] + central[i + 1 :]
        assert judge(joined(body, without), f"without {i}") != "ok"
        twice = central[: i + 1] + central[i:]
        assert judge(joined(body, twice), f"{i} twice") != "ok"
        for j in range(i):
            swapped = [*central]
            swapped[i], swapped[j] = central[j], central[i]
            assert judge(joined(body, swapped), f"swapped {i} {j}") != "ok"
    for huge in (2**16, 2**32, 2**63, 2**64 - 1):
        wide = struct.pack("<Q", huge)
        for field in (4, 12):  # of the end: this many bytes before its start
            mutant = data[: -98 + 24 + field] + wide + data[-98 + 32 + field :]
            assert judge(mutant, "huge") != "ok"
        for place in (len(central[0]) - 24, len(central[0]) - 16, len(central[0]) - 8):
            record = central[0][:place] + wide + central[0][place + 8 :]
            assert judge(joined(body, [record, *central[1:]]), "huge") != "ok"


def test_other_lists_of_entries(data: bytes, judge: Judge, tmp_path: Path) -> None:
    entries, path = [*entries_of(data).items()], tmp_path / "rebuilt"
    assert judge(rebuilt(entries, path), "same") == "ok"
    for i, (name, payload) in enumerate(entries):
        rest = entries[:i] + entries[i + 1 :]
        assert judge(rebuilt(rest, path), f"without {name}") != "ok"
        more = [*entries[:i], ("extra/file", b"1"), *entries[i:]]
        assert judge(rebuilt(more, path), "one more") != "ok"
        for other in (payload + b"\0", payload[:-1], b""):
            changed = [*entries[:i], (name, other), *entries[i + 1 :]]
            assert judge(rebuilt(changed, path), f"other {name}") != "ok"
        renamed = [*entries[:i], (f"{name}x", payload), *entries[i + 1 :]]
        assert judge(rebuilt(renamed, path), f"renamed {name}") != "ok"
    assert judge(rebuilt(entries[::-1], path), "reversed") in ("ok", "3.1")


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1.0, 2**63, 2**64, -(2**70), 1e400, "", "x", "x\n",
    "\ud800", "batch", "-batch", "batch +", "a//0", "max(batch, 1)", "max(batch,)",
    "1_0", "0x1", "((batch))", "(" * 300, "batch**2", "é", "a" * 2000, [], {}, [[]],
    [1], ["x"], {"leaf": 0}, {"leaf": True}, {"leaf": -1}, {"const": None},
    {"const": [1]}, {"list": []}, {"tuple": [{"leaf": 0}]}, {"dict": [["k", {"leaf": 0}]]},
    {"dict": [[["k"], {"leaf": 0}]]}, {"dict": [["k", {"leaf": 0}], ["k", {"leaf": 1}]]},
    {"record": "R", "kind": "namedtuple", "fields": [["class", {"leaf": 0}]]},
    {"record": "R", "kind": "namedtuple", "fields": [["a", {"leaf": 0}]]},
    {"record": "R", "kind": "object", "fields": [["a", {"leaf": 0}]]},
    {"leaf": 0, "more": 1}, "float32", "int4", "weight", "state", "tpu", "cpu",
    "programs/forward.mlirbc", "weights/model.safetensors", "manifest.json", "count",
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], (*path, i))


def holder(manifest: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        manifest = manifest[key]
    return manifest


def edits(manifest: Any) -> Iterator[tuple[str, Any]]:
    """Yield manifests with one value replaced, removed, repeated or added."""
    seeded = random.Random(0)
    for path in [*places(manifest)][1:]:
        for value in (*seeded.sample(VALUES, 8), None):
            edited = copy.deepcopy(manifest)
            holder(edited, path)[path[-1]] = value
            yield f"{path} = {value!r}", edited
        edited = copy.deepcopy(manifest)
        inside = holder(edited, path)
        removed = inside.pop(path[-1])
        yield f"without {path}", copy.deepcopy(edited)
        if isinstance(inside, list):
            inside[path[-1] : path[-1]] = [removed, copy.deepcopy(removed)]
            yield f"{path} twice", edited
            swapped = copy.deepcopy(manifest)
            holder(swapped, path).reverse()
            yield f"{path[:-1]} reversed", swapped
        else:
            inside[f"{path[-1]}x"] = removed
            yield f"{path} renamed", copy.deepcopy(edited)
            inside[path[-1]] = removed
            yield f"{path} and another", edited


def test_edited_manifests(data: bytes, judge: Judge, tmp_path: Path) -> None:
    manifest = json.loads(entries_of(data)["manifest.json"])
    body, path = [*entries_of(data).items()][:-1], tmp_path / "rebuilt"
    rebuilt([*body, ("manifest.json", b"")], path)
    prefix, central, _ = records(path.read_bytes())
    for what, edited in edits(manifest):
        text = json.dumps(edited).encode()
        judge(resealed(prefix, central, text), what)
    assert judge.refused > 500
    assert judge.accepted > 20  # producers, constants, names: not every edit is wrong


def resealed(body: bytes, central: list[bytes], text: bytes) -> bytes:
    """Return the archive with another manifest, quickly: only its headers change."""
    *others, last = central
    crc, size = (
        struct.pack("<I", zlib.crc32(text)),
        struct.pack("<QQ", len(text), len(text)),
    )
    last = last[:16] + crc + last[20:-24] + size + last[-8:]
    (header,) = struct.unpack("<Q", last[-8:])
    extra = header + 30 + len("manifest.json") + 4
    local = body[header : header + 14] + crc + body[header + 18 : extra] + size
    return joined(body[:header] + local + body[extra + 16 :] + text, [*others, last])


def deep(lists: int) -> bytes:
    return b'{"list": [' * lists + b'{"leaf": 0}' + b"]}" * lists


RAW: tuple[tuple[bytes, bytes, str], ...] = (
    (b'"version": 1', b'"version": 2', "version"),
    (b'"version": 1', b'"version": 10000000000000000000000', "version"),
    (b'"version": 1', b'"version": 0', "3.3"),
    (b'"version": 1', b'"version": true', "3.3"),
    (b'"version": 1', b'"version": 1.0', "3.3"),
    (b'"version": 1', b'"version": 1, "version": 1', "3.1"),
    (b'"features": []', b'"features": ["sharded"]', "version"),
    (b'"features": []', b'"features": [1]', "version"),
    (b'"features": []', b'"features": {}', "3.3"),
    (b'"features": []', b'"features": ["constraints"]', "3.10"),
    (b'"dims": []', b'"dims": [], "constraints": []', "3.3"),
    (b'"dims": []', b'"dims": [], "ranges": []', "3.3"),
    (b'"dims": []', b'"dims": [], "constraints": ["1 < 2"]', "3.10"),
    (b'"version": 1', b'"version": ' + b"1" * 5000, "3.1"),
    (b'"version": 1', b'"version": NaN', "3.3"),
    (b'"version": 1', b'"version": ' + b"[" * 100_000, "3.1"),
    (b'"tree": {"leaf": 0}', b'"tree": ' + deep(63), "ok"),
    (b'"tree": {"leaf": 0}', b'"tree": ' + deep(64), "3.9"),
    (b'"tree": {"leaf": 0}', b'"tree": ' + deep(100), "3.9"),
    (b"}", b"}}", "3.1"), (b"{", b"", "3.1"), (b"{", b"\xef\xbb\xbf{", "3.1"),
    (b'"version"', b'"versi\xffn"', "3.1"), (b"{", b" \n{", "ok"),
)  # fmt: skip


@pytest.mark.parametrize(("old", "new", "rule"), RAW)
def test_edited_texts(
    old: bytes, new: bytes, rule: str, artifact: Make, judge: Judge, tmp_path: Path
) -> None:
    data = artifact("add").read_bytes()
    text = json.dumps(json.loads(entries_of(data)["manifest.json"])).encode()
    assert old in text
    changed = text.replace(old, new, 1)
    assert judge(with_manifest(data, changed, tmp_path / "r"), repr(new[:40])) == rule


def test_a_manifest_in_another_encoding(
    artifact: Make, judge: Judge, tmp_path: Path
) -> None:
    data = artifact("add").read_bytes()
    text = entries_of(data)["manifest.json"].decode().encode("utf-16")
    assert judge(with_manifest(data, text, tmp_path / "r"), "utf-16") == "3.1"


def header_edits(payload: bytes) -> Iterator[tuple[str, bytes]]:
    (length,) = struct.unpack_from("<Q", payload)
    header, body = json.loads(payload[8 : 8 + length]), payload[8 + length :]
    sizes: tuple[Any, ...] = (
        0.0, False, -1, 2**62, 2**63, 10**30, "4", [[]], [0, 2**40, 2**40], [0, 10**30],
        [1] * 33, [1] * 32, {}, None, "F4", ["F32"], "F64", [0, 0], [4, 0], [0.0, 16.0],
    )  # fmt: skip
    for path in [*places(header)][1:]:
        for value in sizes:
            edited = copy.deepcopy(header)
            holder(edited, path)[path[-1]] = value
            yield f"{path} = {value}", with_header(edited, body)
    yield "metadata", with_header({"__metadata__": {"a": "b"}, **header}, body)
    yield "reversed", with_header(dict(reversed(header.items())), body)
    yield (
        "empty tensor",
        with_header(
            {"e": {"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]}, **header},
            body,
        ),
    )
    yield (
        "huge empty",
        with_header(
            {
                "e": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]},
                **header,
            },
            body,
        ),
    )
    yield "more bytes", payload + b"\0"
    yield "less bytes", payload[:-1]
    yield "no bytes", b""
    yield "long", struct.pack("<Q", 2**63) + payload[8:]
    yield "unpadded", struct.pack("<Q", length + 1) + payload[8:]
    text = payload[8 : 8 + length].rstrip()
    twice = text[:-1] + b"," + text[1:]
    yield "key twice", padded(twice) + body
    yield "utf-16", padded(text.decode().encode("utf-16")) + body


def with_header(header: Any, body: bytes) -> bytes:
    return padded(json.dumps(header).encode()) + body


def padded(text: bytes) -> bytes:
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text


def test_edited_tensor_headers(artifact: Make, judge: Judge, tmp_path: Path) -> None:
    data = artifact("linear").read_bytes()
    entries = entries_of(data)
    name = "weights/model.safetensors"
    for what, payload in header_edits(entries[name]):
        manifest = json.loads(entries["manifest.json"])
        digest = hashlib.sha256(payload).hexdigest()
        manifest["entries"][name] = {"size": len(payload), "sha256": digest}
        text = json.dumps(manifest).encode()
        mutant = {**entries, name: payload, "manifest.json": text}
        judge(rebuilt(mutant.items(), tmp_path / "r"), what)
    assert judge.accepted >= 1
    assert judge.refused > 100
