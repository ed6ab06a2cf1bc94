"""One .tflite for any size, of files that were converted at several: what varies is opened.

Given:  the same program at some sizes, converted: the same ops, other shapes.
Result: the first file, with -1 for the sizes that vary, in tensors and in shapes that ops read.
Every op then computes its sizes from those of the inputs; what cannot is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import Node, nodes_of, read_model, write_model
from tpu_export.converters.litert.job import converted
from tpu_export.converters.litert.scopes import UNKNOWN
from tpu_export.converters.litert.sizes import Sizes, family
from tpu_export.converters.litert.static import StaticProgram
from tpu_export.runtime.errors import TpuExportError

_SAME, _INT32 = 0, 2  # Padding and TensorType of schema.fbs


class SymbolicSizeError(TpuExportError):
    """An op of a .tflite that holds a size, so that the file is for that size only."""

    code = "TPX-0643"

    def __init__(self, problems: Sequence[str]) -> None:
        """Name the ops."""
        super().__init__(
            f"the .tflite cannot be of any size: {'; '.join(dict.fromkeys(problems))}",
            hint="leave out --dynamic-dims symbolic: there is a signature for each size then "
            "(--bucket); or fix the dimensions that these ops need",
        )


def converted_symbolic(
    programs: Mapping[str, StaticProgram], sizes: Mapping[str, Sizes], place: Path
) -> Path:
    """Convert signatures at their sizes, and return one file whose sizes are open.

    Args:
        programs: by name, a signature of the model at several sizes (`sized_name`).
        sizes: of them. Size 0 and 1 are left out: the converter makes other ops then.
        place: folder to write into.

    Raises:
        SymbolicSizeError: an op holds a size, or the ops differ.
        LiteRtConversionError, LiteRtCrashedError: as of `converted`.
    """
    models: dict[str, list[str]] = {}
    for name in programs:
        own = sizes.get(name, {})
        if all(size > 1 for size in own.values()):
            models.setdefault(family(name, own), []).append(name)
    paths = []
    for k in range(max(map(len, models.values()))):
        folder = place / f"size-{k}"
        folder.mkdir()
        chosen = {model: names[k % len(names)] for model, names in models.items()}
        paths.append(converted({m: programs[n] for m, n in chosen.items()}, folder))
    return opened(paths, place / "model.tflite")


def opened(paths: Sequence[Path], result: Path) -> Path:
    """Write the first file, with -1 where the others have other sizes.

    Raises:
        SymbolicSizeError: an op holds a size, or the ops differ.
    """
    models = [read_model(path) for path in paths]
    problems: list[str] = []
    for i in range(len(models[0].subgraphs)):
        level = _Level(models, [model.subgraphs[i] for model in models])
        problems += level.differing() or level.open()
    if problems:
        raise SymbolicSizeError(problems)
    write_model(models[0], result)
    return result


@dataclass(frozen=True)
class _Level:
    """A subgraph of the first file, and its counterparts at other sizes."""

    models: Sequence[Any]
    graphs: Sequence[Any]

    def differing(self) -> list[str]:
        """Return where other files have other ops."""
        first, *others = (
            list(nodes_of(m, g)) for m, g in zip(self.models, self.graphs, strict=True)
        )
        for other in others:
            for a, b in zip(first, other, strict=False):
                if (a.name, a.inputs, a.outputs) != (b.name, b.inputs, b.outputs):
                    return [f"{_told(a)} is {_told(b)} at another size"]
            if len(first) != len(other):
                return [f"{len(first)} ops are {len(other)} at another size"]
        return []

    def open(self) -> list[str]:
        """Open what varies in the first subgraph; returns what cannot be opened."""
        nodes = list(nodes_of(self.models[0], self.graphs[0]))
        problems = [p for i, node in enumerate(nodes) for p in self._held(i, node)]
        for tensor in range(len(self.graphs[0].tensors)):
            problems += self._opened(tensor, nodes)
        return problems

    def _opened(self, tensor: int, nodes: Sequence[Node]) -> Iterator[str]:
        shapes, values = self.shapes(tensor), self.values(tensor)
        readers = [node for node in nodes if tensor in node.inputs]
        if values[0] is None:
            varies = (shapes != shapes[0]).any(0)
            if varies.any():
                made = np.where(varies, -1, shapes[0]).astype(np.int32)
                self.graphs[0].tensors[tensor].shapeSignature = made
            return
        if all(_equal(value, values[0]) for value in values[1:]):
            return
        sizes = self.integers(tensor)
        fixed = [
            node
            for node in readers
            if sizes is None or not _OPENED.get(node.name, _never)(self, node, tensor)
        ]
        if sizes is not None and not fixed:
            self._reset(tensor, sizes)
        for node in fixed:
            yield f"{_told(node)} reads a constant that depends on the size"

    def _reset(self, tensor: int, sizes: Array) -> None:
        """Put -1 where a shape varies, in a buffer of its own."""
        made = np.where((sizes != sizes[0]).any(0), -1, sizes[0]).astype(np.int32)
        first, model = self.graphs[0].tensors[tensor], self.models[0]
        buffer = type(model.buffers[0])()
        buffer.data = made.view(np.uint8)
        model.buffers.append(buffer)
        first.buffer = len(model.buffers) - 1

    def _held(self, place: int, node: Node) -> Iterator[str]:
        """Yield what an op's options hold of a size."""
        options = [graph.operators[place].builtinOptions for graph in self.graphs]
        if node.name == "RESHAPE":
            if options[0] is not None:
                options[0].newShape = None  # its second input says the same
        elif any(_plain(o) != _plain(options[0]) for o in options[1:]):
            yield f"{_told(node)} has options that depend on the size"
        elif getattr(options[0], "padding", None) == _SAME:
            shapes = self.shapes(node.inputs[0])[:, 1:-1]
            strides = (getattr(options[0], f"stride{d}", 1) for d in "DHW")
            if max(strides) > 1 and (shapes != shapes[0]).any():
                yield f"{_told(node)} pads by the size (SAME, with a stride)"

    def shapes(self, tensor: int) -> Array:
        """Return the shape of a tensor in each file: [files, rank]."""
        return np.stack([np.asarray(g.tensors[tensor].shape) for g in self.graphs])

    def values(self, tensor: int) -> list[Array | None]:
        """Return the bytes of a constant in each file; None where it is none."""
        return [
            model.buffers[graph.tensors[tensor].buffer].data
            for model, graph in zip(self.models, self.graphs, strict=True)
        ]

    def integers(self, tensor: int) -> Array | None:
        """Return the int32 values of a constant in each file: [files, elements]."""
        held = [np.asarray(v, np.uint8) for v in self.values(tensor) if v is not None]
        if self.graphs[0].tensors[tensor].type != _INT32:
            return None
        if len(held) < len(self.graphs) or len({v.size for v in held}) > 1:
            return None
        return np.stack(held).view(np.int32)


def _reshape(level: _Level, node: Node, tensor: int) -> bool:
    """Tell whether RESHAPE can infer what varies: one size can be."""
    sizes = level.integers(tensor)
    if sizes is None or tensor != node.inputs[1]:
        return False
    return bool((sizes != sizes[0]).any(0).sum() == 1)


def _slice(level: _Level, node: Node, tensor: int) -> bool:
    """Tell whether all that varies goes to the end: -1 says so."""
    value, begin, size = node.inputs
    starts, sizes = level.integers(begin), level.integers(size)
    if starts is None or sizes is None or tensor != size or size == begin:
        return False
    varies = (sizes != sizes[0]).any(0)
    return bool((starts + sizes == level.shapes(value))[:, varies].all())


def _never(level: _Level, node: Node, tensor: int) -> bool:
    return False


_OPENED: dict[str, Callable[[_Level, Node, int], bool]] = {
    "RESHAPE": _reshape,
    "SLICE": _slice,
}


def _told(node: Node) -> str:
    return node.name if node.place == UNKNOWN else f"{node.name} of {node.place}"


def _equal(a: Array | None, b: Array | None) -> bool:
    return (a is None and b is None) or (
        a is not None and b is not None and np.array_equal(a, b)
    )


def _plain(options: Any) -> dict[str, object]:
    held = vars(options) if options is not None else {}
    return {k: np.asarray(v).tolist() for k, v in held.items()}
