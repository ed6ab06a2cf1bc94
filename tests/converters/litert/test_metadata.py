"""Metadata goes in front of a .tflite and leaves what it computes as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tpu_export as tx
from tpu_export.converters.litert.contents import LiteRtFileError, read_contents
from tpu_export.converters.litert.engine import compiled, interpreter
from tpu_export.converters.litert.flatbuffer import op_histograms
from tpu_export.converters.litert.metadata import add_metadata

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
ENTRIES = {"tpu_export": b'{"version":1}', "golden": bytes(range(251)), "none": b""}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)]
    model = torch.nn.Sequential(*layers).eval()
    path = tmp_path_factory.mktemp("plain") / "m.tflite"
    return tx.to_litert(model, (torch.from_numpy(X),)).save(path)


def call(path: Path) -> np.ndarray:
    return interpreter(path)("forward", {"input": X})["output_0"]


def test_entries_are_added(plain: Path, tmp_path: Path) -> None:
    once, again, twice = (tmp_path / f"{i}.tflite" for i in range(3))
    add_metadata(plain, once, ENTRIES)
    add_metadata(plain, again, dict(reversed(ENTRIES.items())))
    add_metadata(once, twice, {"more": b"1"})
    assert once.read_bytes() == again.read_bytes()
    assert once.read_bytes().endswith(plain.read_bytes())
    before, after = read_contents(plain).metadata, read_contents(twice).metadata
    assert after == {**before, **ENTRIES, "more": b"1"}
    assert op_histograms(twice) == op_histograms(plain)


def test_both_engines_compute_the_same(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    add_metadata(plain, path, ENTRIES)
    np.testing.assert_array_equal(call(path), call(plain))
    got = compiled(path)("forward", {"input": X})["output_0"]
    np.testing.assert_allclose(got, call(plain), rtol=1e-5, atol=1e-6)


def test_constants_stay_aligned(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    add_metadata(plain, path, {"odd": b"123"})
    old, new = plain.read_bytes(), path.read_bytes()
    assert (len(new) - len(old)) % 64 == 0
    assert new.index(b"123") % 16 == 0


def test_weights_after_the_flatbuffer_move_along(plain: Path, tmp_path: Path) -> None:
    """As in files of 2 GB and more: a buffer that is an offset and a size."""
    outside, path = tmp_path / "outside.tflite", tmp_path / "m.tflite"
    move_weights_out(plain, outside)
    add_metadata(outside, path, ENTRIES)
    weights = [c.sha256 for c in read_contents(plain, hashes=True).constants]
    assert [c.sha256 for c in read_contents(path, hashes=True).constants] == weights
    np.testing.assert_array_equal(call(path), call(plain))


def move_weights_out(source: Path, target: Path) -> None:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(source.read_bytes(), 0)
    held = [b for b in model.buffers if b.data is not None and len(b.data) > 256]
    assert held
    blobs = [bytes(b.data) for b in held]
    size = 0
    for _ in range(2):  # the offsets are known once the flatbuffer has a size
        place = size
        for buffer, blob in zip(held, blobs, strict=True):
            place += -place % 16
            buffer.data, buffer.offset, buffer.size = None, max(place, 2), len(blob)
            place += len(blob)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        packed = bytes(builder.Output())
        size = len(packed)
    for blob in blobs:
        packed += bytes(-len(packed) % 16) + blob
    target.write_bytes(packed)


def test_contents(plain: Path) -> None:
    found = read_contents(plain, hashes=True)
    signature = found.signatures["forward"]
    assert [str(s) for s in signature.inputs] == ["float32[2, 16]"]
    assert [s.name for s in signature.outputs] == ["output_0"]
    assert signature.ops == {"FULLY_CONNECTED": 2}
    weights = [c for c in found.constants if c.dtype == "float32"]
    assert sum(c.size for c in weights) == 4 * (16 * 64 + 64 + 64 * 4 + 4)
    assert {c.op for c in weights} == {"FULLY_CONNECTED"}


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\3\4" + bytes(99)])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(content)
    with pytest.raises(LiteRtFileError):
        read_contents(path)
    with pytest.raises(LiteRtFileError, match="No such file"):
        read_contents(tmp_path / "none.tflite")


def test_a_damaged_file_is_refused_or_read(plain: Path, tmp_path: Path) -> None:
    content, path = plain.read_bytes(), tmp_path / "m.tflite"
    draw = np.random.default_rng(0)
    refused = 0
    for size in draw.integers(8, len(content), 40):
        path.write_bytes(content[:size])
        with pytest.raises(LiteRtFileError):
            read_contents(path)
    for place in draw.integers(8, len(content), 200):
        path.write_bytes(content[:place] + b"\xff\xff" + content[place + 2 :])
        try:
            read_contents(path)
        except LiteRtFileError:
            refused += 1
    assert 0 < refused < 200
