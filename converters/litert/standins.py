"""Weights that the converter never sees: it places markers, and their values come afterwards.

A conversion is then as large as the program, not as its weights.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tpu_export.converters.litert.exchange import Array

# How the value of a marker comes about, JSON-able: {"weight": key, "shape": […]}, {"constant":
# key}, or {"op": name, "of": [expressions]}.
Expression: TypeAlias = Mapping[str, Any]

# Smaller constants are folded by the converter's passes, which see dense ones only.
LARGE = 4096
_MAGIC = b"tpu-export value"
# A uoffset reaches further, but verifiers of flatbuffers stop here.
_LIMIT = 2**31 - 2**26

OPS: Mapping[str, Callable[..., Array]] = {
    "tfl.add": np.add,
    "tfl.div": np.divide,
    "tfl.mul": np.multiply,
    "tfl.reshape": lambda x, shape: x.reshape(shape),
    "tfl.sub": np.subtract,
    "tfl.transpose": np.transpose,
}


@dataclass(frozen=True)
class StandIn:
    """What a conversion knows of a weight: no values."""

    key: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the weight."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


def is_large(array: Array) -> bool:
    """Tell whether a weight is no vector or boolean, and of some size."""
    # Vectors are biases: the passes fold them. Of large booleans the export writes too few bytes.
    vector = array.ndim <= 1 or max(array.shape, default=0) == array.size
    return not vector and array.dtype != np.bool_ and array.nbytes >= LARGE


def with_stand_ins(arrays: Mapping[str, Array]) -> dict[str, StandIn]:
    """Return stand-ins of the large weights; none where the file would be too large."""
    found = {
        key: StandIn(key, array.dtype, array.shape)
        for key, array in arrays.items()
        if is_large(array) and not _is_depthwise(array) and not _is_quantized(array)
    }
    return found if sum(s.nbytes for s in found.values()) < _LIMIT else {}


def _is_depthwise(array: Array) -> bool:
    """Tell whether a weight may be a filter that the converter transposes: a small one."""
    return array.ndim > 2 and 1 in array.shape[1:] and array.size <= 64 * array.shape[0]


def _is_quantized(array: Array) -> bool:
    """Tell whether a weight may be of a quantized layer: integers.py reads its values."""
    return array.dtype.itemsize == 1


def marker(number: int) -> bytes:
    """Return the bytes that a buffer holds until it is filled."""
    return _MAGIC + struct.pack("<II", number, 1)


def value(
    expression: Expression,
    weights: Mapping[str, Array],
    constants: Mapping[str, Array],
) -> Array:
    """Compute what a marker stands for, as the converter's own passes would."""
    if "weight" in expression:
        return weights[expression["weight"]].reshape(expression["shape"])
    if "constant" in expression:
        return constants[expression["constant"]]
    operands = [value(e, weights, constants) for e in expression["of"]]
    return OPS[expression["op"]](*operands)


def fill(path: Path, count: int, of: Callable[[int], Array]) -> None:
    """Write the values of all markers behind a file, and let its buffers point there.

    Args:
        path: a .tflite with `count` markers.
        of: returns the value of a marker; one at a time is held.
    """
    data = bytearray(path.read_bytes())
    places = _places(data)
    if sorted(places) != list(range(count)):
        message = f"markers {sorted(places)} are in the file, of {count}"
        raise AssertionError(message)
    end = len(data)
    with path.open("r+b") as file:
        for number, place in sorted(places.items()):
            content = np.ascontiguousarray(of(number))
            end += -(end + 4) % 16  # the runtime wants buffers aligned
            struct.pack_into("<I", data, place, end - place)
            file.seek(end)
            file.write(struct.pack("<I", content.nbytes))
            file.write(content.data.cast("B"))
            end += 4 + content.nbytes
        file.seek(0)
        file.write(data)


def _places(data: bytearray) -> dict[int, int]:
    """Return, by marker, where the offset of its buffer's bytes lies."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(data, 0)
    found: dict[int, int] = {}
    for index in range(model.BuffersLength()):
        buffer = model.Buffers(index)
        held = bytes(buffer.DataAsNumpy()) if 0 < buffer.DataLength() < 64 else b""
        if held.startswith(_MAGIC):
            (number,) = struct.unpack_from("<I", held, len(_MAGIC))
            found[number] = buffer._tab.Pos + buffer._tab.Offset(4)
    return found


def keys_of(expressions: Sequence[Expression]) -> set[str]:
    """Return the weights of expressions."""
    found: set[str] = set()
    for expression in expressions:
        if "weight" in expression:
            found.add(expression["weight"])
        found |= keys_of(expression.get("of", ()))
    return found
