"""The safetensors profile of a .tpuexe: aligned, streamed in, mapped out.

docs/tpuexe.md section 4. Every file is plain safetensors; more files than that are refused.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tpu_export.runtime.archive import ArtifactCorruptedError

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# shape, dtype name, and what gives the values when they are written
Source: TypeAlias = tuple[tuple[int, ...], str, Callable[[], Array]]

ALIGNMENT = 64  # XLA:CPU uses an aligned buffer in place
MAX_HEADER = 100 * 2**20
MAX_RANK = 32
CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
    "complex128": "C128",
}
_NAMES = {code: name for name, code in CODES.items()}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy or ml_dtypes dtype of a name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def stream(tensors: Mapping[str, Source]) -> Iterator[bytes | memoryview]:
    """Yield a safetensors file; each tensor's values are asked for when their turn comes."""
    order = sorted(tensors, key=lambda n: (_nbytes(tensors[n]) % ALIGNMENT != 0, n))
    header: dict[str, object] = {}
    offset = 0
    for name in order:
        shape, dtype, _ = tensors[name]
        end = offset + _nbytes(tensors[name])
        header[name] = {
            "dtype": CODES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        shape, dtype, provide = tensors[name]
        array = np.asarray(provide(), order="C")
        assert array.shape == shape, name
        assert array.dtype.name == dtype, name
        yield array.reshape(-1).view(np.uint8).data


def read(data: memoryview, entry: str) -> dict[str, Array]:
    """Return the tensors of a safetensors file as read-only views of `data`.

    Raises:
        ArtifactCorruptedError: the file breaks the profile.
    """

    def require(condition: bool, what: str) -> None:
        if not condition:
            raise ArtifactCorruptedError("4", f"{entry}: {what}")

    require(len(data) >= 8, "too short")
    (length,) = struct.unpack_from("<Q", data)
    require(length <= min(MAX_HEADER, len(data) - 8), "header longer than the file")
    require((8 + length) % ALIGNMENT == 0, "header not padded")
    header = _header(bytes(data[8 : 8 + length]), entry)
    body, offset = data[8 + length :], 0
    arrays: dict[str, Array] = {}
    for name, info in header.items():
        require(_is_record(info), f"bad record of {name!r}")
        shape, span = info["shape"], info["data_offsets"]
        dtype = numpy_dtype(_NAMES[info["dtype"]])
        volume = math.prod(d or 1 for d in shape) * dtype.itemsize
        require(volume < 2**63, f"bad shape of {name!r}")
        end = offset + math.prod(shape) * dtype.itemsize
        require(span == [offset, end] and end <= len(body), f"bad span of {name!r}")
        flat = np.frombuffer(body[offset:end], np.uint8).view(dtype)
        arrays[name] = flat.reshape(shape)
        offset = end
    require(offset == len(body), "bytes after the last tensor")
    return arrays


def _is_record(info: object) -> bool:
    if not isinstance(info, dict):
        return False
    if info.keys() != {"dtype", "shape", "data_offsets"}:
        return False
    shape, span = info["shape"], info["data_offsets"]
    if not isinstance(info["dtype"], str) or info["dtype"] not in _NAMES:
        return False
    lists = isinstance(shape, list) and isinstance(span, list)
    whole = lists and all(type(n) is int and n >= 0 for n in (*shape, *span))
    return whole and len(shape) <= MAX_RANK


def write_file(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as a safetensors file."""
    sources: dict[str, Source] = {
        name: (array.shape, array.dtype.name, partial(np.asarray, array))
        for name, array in arrays.items()
    }
    with path.open("wb") as file:
        file.writelines(stream(sources))


def map_file(path: Path) -> dict[str, Array]:
    """Return the tensors of a safetensors file, mapped, not read into memory."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return read(memoryview(data), path.name)


def strict_json(text: bytes) -> Any:
    """Return the value of a JSON text in UTF-8 that repeats no key.

    Raises:
        ValueError: it is not such a text.
        RecursionError: it is nested too deep.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            message = "a key twice"
            raise ValueError(message)
        return dict(pairs)

    return json.loads(text.decode("utf-8"), object_pairs_hook=unique)


def _header(text: bytes, entry: str) -> dict[str, Any]:
    try:
        header = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise ArtifactCorruptedError("4", f"{entry}: bad header, {error}") from error
    if not isinstance(header, dict):
        raise ArtifactCorruptedError("4", f"{entry}: header is no object")
    return header


def _nbytes(source: Source) -> int:
    shape, dtype, _ = source
    return math.prod(shape) * numpy_dtype(dtype).itemsize
