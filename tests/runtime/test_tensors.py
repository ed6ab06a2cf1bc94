from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.tensors import (
    ALIGNMENT,
    CODES,
    map_file,
    numpy_dtype,
    read,
    stream,
    write_file,
)

SHAPES = ((), (0,), (1,), (3, 5), (0, 4), (16, 16), (1,) * 32)


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2, (*shape, 1)).astype(np.uint8)
    if dtype == "bool":
        return bits[..., 0].astype(np.bool_)
    return (bits[..., 0].astype(np.float32) * 3).astype(numpy_dtype(dtype))


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    sources: Any = {
        n: (a.shape, a.dtype.name, lambda a=a: a) for n, a in arrays.items()
    }
    return b"".join(bytes(chunk) for chunk in stream(sources))


@pytest.mark.parametrize("dtype", CODES)
def test_every_dtype_and_rank(dtype: str) -> None:
    arrays = {f"t{i}": sample(dtype, shape) for i, shape in enumerate(SHAPES)}
    found = read(memoryview(packed(arrays)), "x")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable


# The package's numpy side knows no bfloat16, float8 and complex128.
KNOWN = [d for d in CODES if not d.startswith(("bfloat", "float8", "complex128"))]


@pytest.mark.parametrize("dtype", KNOWN)
def test_the_safetensors_package_reads_it(dtype: str) -> None:
    package = pytest.importorskip("safetensors.numpy")
    arrays = {"a": sample(dtype, (3, 5)), "b": sample(dtype, ())}
    found = package.load(packed(arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_all_at_once_in_order_of_alignment() -> None:
    arrays = {
        "odd": np.ones(3, np.float32),
        "even": np.ones((16, 4), np.float32),
        "byte": np.ones(1, np.int8),
        "big": np.ones(64, np.int8),
    }
    found = read(memoryview(packed(arrays)), "x")
    assert list(found) == ["big", "even", "byte", "odd"]
    data = packed(arrays)
    base = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    for name in ("big", "even"):
        view = read(memoryview(data), "x")[name]
        place = view.__array_interface__["data"][0] - base
        assert place % ALIGNMENT == 0


def test_strided_and_fortran_arrays() -> None:
    base = np.arange(24, dtype=np.int32).reshape(4, 6)
    arrays = {"t": base.T, "s": base[::2, ::-1], "f": np.asfortranarray(base)}
    found = read(memoryview(packed(arrays)), "x")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_no_tensors() -> None:
    assert read(memoryview(packed({})), "x") == {}


def test_values_are_asked_for_one_at_a_time() -> None:
    alive: list[str] = []

    def provide(name: str) -> np.ndarray:
        alive.append(name)
        return np.ones(1 << 16, np.float32)

    sources: Any = {
        n: ((1 << 16,), "float32", lambda n=n: provide(n)) for n in ("a", "b")
    }
    chunks = stream(sources)
    next(chunks)
    assert alive == []
    next(chunks)
    assert alive == ["a"]


def test_files(tmp_path: Path) -> None:
    arrays = {"x": np.arange(5, dtype=np.int64), "e": np.zeros((0, 2), np.float32)}
    write_file(tmp_path / "t.safetensors", arrays)
    found = map_file(tmp_path / "t.safetensors")
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def raw(header: bytes, body: bytes = b"") -> bytes:
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    return struct.pack("<Q", len(header)) + header + body


BROKEN = {
    "nothing": b"",
    "short": b"\0" * 7,
    "length beyond the end": struct.pack("<Q", 1 << 20) + b"{}" + b" " * 54,
    "no padding": struct.pack("<Q", 2) + b"{}",
    "no JSON": raw(b"{"),
    "a list": raw(b"[]"),
    "a key twice": raw(
        b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    ),
    "metadata": raw(b'{"__metadata__":{"a":"b"}}'),
    "no record": raw(b'{"a":1}'),
    "unknown dtype": raw(b'{"a":{"dtype":"F4","shape":[],"data_offsets":[0,0]}}'),
    "dtype is a list": raw(b'{"a":{"dtype":[],"shape":[],"data_offsets":[0,0]}}'),
    "negative size": raw(b'{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}'),
    "size is true": raw(
        b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}', b"1"
    ),
    "offset is 0.0": raw(
        b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0.0,1]}}', b"1"
    ),
    "too large": raw(
        b'{"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}'
    ),
    "rank 33": raw(
        b'{"a":{"dtype":"U8","shape":[' + b"1," * 32 + b'1],"data_offsets":[0,1]}}',
        b"1",
    ),
    "overlap": raw(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', b"12"),
    "beyond the end": raw(b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'),
    "bytes left": raw(b"{}", b"1"),
    "deep": raw(b"[" * 100_000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_name_rule_4(name: str) -> None:
    with pytest.raises(ArtifactCorruptedError) as caught:
        read(memoryview(BROKEN[name]), "weights/x.safetensors")
    assert caught.value.rule == "4"
    assert "weights/x.safetensors" in caught.value.message
