"""What any .tflite holds: signatures, ops, constants and metadata, read and not run."""

from __future__ import annotations

import hashlib
import mmap
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.flatbuffer import Histogram, op_names
from tpu_export.runtime.errors import TpuExportError

# What reading bytes that are no flatbuffer ends in.
_BROKEN = (
    struct.error,
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)


class LiteRtFileError(TpuExportError):
    """A file that is no .tflite, or is damaged."""

    code = "TPX-0650"


@dataclass(frozen=True)
class Slot:
    """An input or output: value = scale * (q - zero) where it is quantized.

    Attributes:
        shape: -1 where the size is not fixed.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: float | None = None
    zero: int | None = None

    def __str__(self) -> str:
        """Return "int8[1, 10], value = 0.1 * (q - 3)"."""
        sizes = ", ".join("?" if d < 0 else str(d) for d in self.shape)
        text = f"{self.dtype}[{sizes}]"
        if self.scale is None:
            return text
        return f"{text}, value = {self.scale:.6g} * (q - {self.zero})"


@dataclass(frozen=True)
class SignatureContents:
    """A signature: its inputs and outputs in order, and the count of each op."""

    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    ops: Histogram


@dataclass(frozen=True)
class Constant:
    """A tensor whose values are in the file.

    Attributes:
        op: that reads it first; "" where none does.
        scales: how many scales it is quantized by; 0: not at all.
        sha256: of its bytes; "" where it was not asked for.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    op: str
    scales: int
    sha256: str = ""


@dataclass(frozen=True)
class Contents:
    """A .tflite.

    Attributes:
        size: of the file in bytes.
        metadata: bytes by name.
    """

    size: int
    signatures: Mapping[str, SignatureContents]
    constants: tuple[Constant, ...]
    metadata: Mapping[str, bytes]


def read_contents(path: Path, *, hashes: bool = False) -> Contents:
    """Read a .tflite of any maker.

    Args:
        hashes: whether to hash the constants, which reads the whole file.

    Raises:
        LiteRtFileError: it cannot be read, or is no .tflite, or is damaged.
    """
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        reason = getattr(error, "strerror", None) or "it is empty"
        raise _refused(path, f"cannot be read: {reason}") from error
    if data[4:8] != b"TFL3":
        raise _refused(path, "is no .tflite: it does not begin as one")
    try:
        return _contents(data, hashes=hashes)
    except _BROKEN as error:
        raise _refused(path, "is damaged: an offset in it leads nowhere") from error


def _refused(path: Path, what: str) -> LiteRtFileError:
    return LiteRtFileError(
        f"{path} {what}", hint="give a .tflite, such as of --target litert"
    )


def _contents(data: mmap.mmap, *, hashes: bool) -> Contents:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(data, 0)
    dtypes = {v: k.lower() for k, v in vars(schema.TensorType).items() if k.isupper()}
    codes = op_names(model)
    signatures = {}
    for i in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(i)
        graph = model.Subgraphs(signature.SubgraphIndex())
        signatures[signature.SignatureKey().decode()] = SignatureContents(
            *_sides(signature, graph, dtypes), _histogram(graph, codes)
        )
    entries = [model.Metadata(i) for i in range(model.MetadataLength())]
    return Contents(
        size=len(data),
        signatures=signatures or _unnamed(model, dtypes, codes),
        constants=tuple(_constants(data, model, dtypes, codes, hashes=hashes)),
        metadata={
            e.Name().decode(): _bytes(data, model.Buffers(e.Buffer())).tobytes()
            for e in entries
        },
    )


def _sides(
    signature: Any, graph: Any, dtypes: Mapping[int, str]
) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
    inputs = (signature.Inputs(i) for i in range(signature.InputsLength()))
    outputs = (signature.Outputs(i) for i in range(signature.OutputsLength()))
    first, second = (
        tuple(
            _slot(x.Name().decode(), graph.Tensors(x.TensorIndex()), dtypes)
            for x in side
        )
        for side in (inputs, outputs)
    )
    return first, second


def _unnamed(
    model: Any, dtypes: Mapping[int, str], codes: list[str]
) -> dict[str, SignatureContents]:
    """Return the first subgraph of a file without signatures, under the name ""."""
    graph = model.Subgraphs(0)

    def side(places: Iterable[int]) -> tuple[Slot, ...]:
        tensors = [graph.Tensors(place) for place in places]
        return tuple(_slot(t.Name().decode(), t, dtypes) for t in tensors)

    inputs = side(map(graph.Inputs, range(graph.InputsLength())))
    outputs = side(map(graph.Outputs, range(graph.OutputsLength())))
    return {"": SignatureContents(inputs, outputs, _histogram(graph, codes))}


def _slot(name: str, tensor: Any, dtypes: Mapping[int, str]) -> Slot:
    signed = tensor.ShapeSignatureLength()
    sizes = tensor.ShapeSignatureAsNumpy() if signed else _shape(tensor)
    scale, zero = None, None
    quantization = tensor.Quantization()
    if quantization is not None and quantization.ScaleLength():
        scale = float(quantization.Scale(0))
        zero = int(quantization.ZeroPoint(0)) if quantization.ZeroPointLength() else 0
    return Slot(name, dtypes[tensor.Type()], tuple(int(d) for d in sizes), scale, zero)


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(int(tensor.Shape(i)) for i in range(tensor.ShapeLength()))


def _histogram(graph: Any, codes: list[str]) -> Histogram:
    operators = map(graph.Operators, range(graph.OperatorsLength()))
    return dict(Counter(codes[op.OpcodeIndex()] for op in operators).most_common())


def _constants(
    data: mmap.mmap,
    model: Any,
    dtypes: Mapping[int, str],
    codes: list[str],
    *,
    hashes: bool,
) -> Iterator[Constant]:
    """Yield each buffer that a tensor has once, whichever subgraphs share it."""
    seen: set[int] = set()
    for graph in map(model.Subgraphs, range(model.SubgraphsLength())):
        readers: dict[int, str] = {}
        for operator in map(graph.Operators, range(graph.OperatorsLength())):
            for i in map(operator.Inputs, range(operator.InputsLength())):
                readers.setdefault(int(i), codes[operator.OpcodeIndex()])
        for i, tensor in enumerate(map(graph.Tensors, range(graph.TensorsLength()))):
            held = _bytes(data, model.Buffers(tensor.Buffer()))
            if not held.size or tensor.Buffer() in seen:
                continue
            seen.add(tensor.Buffer())
            quantization = tensor.Quantization()
            yield Constant(
                name=tensor.Name().decode(),
                dtype=dtypes[tensor.Type()],
                shape=_shape(tensor),
                size=held.size,
                op=readers.get(i, ""),
                scales=quantization.ScaleLength() if quantization else 0,
                sha256=hashlib.sha256(held.data).hexdigest() if hashes else "",
            )


def _bytes(data: mmap.mmap, buffer: Any) -> Array:
    """Return a buffer's bytes, of the flatbuffer or after it.

    Raises:
        ValueError: they end after the file.
    """
    if buffer.Offset() > 1:
        return np.frombuffer(data, np.uint8, buffer.Size(), buffer.Offset())
    if not buffer.DataLength():
        return np.empty(0, np.uint8)
    found: Array = buffer.DataAsNumpy()
    return found
