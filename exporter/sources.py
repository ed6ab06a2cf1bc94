"""What the command line calls MODEL: a text that names a model, resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from tpu_export.exporter.capture import Captured, Example, Model, capture
from tpu_export.exporter.programs import load_program
from tpu_export.exporter.second_inputs import second_inputs
from tpu_export.exporter.shapes import Shapes
from tpu_export.runtime.errors import TpuExportError

FORMS = (
    "path.py, path.py:factory, path.pt2, zoo:NAME, "
    "hf:DIR (a local Hugging Face directory)"
)


class UnknownSourceError(TpuExportError):
    """The text has none of the forms that name a model."""

    code = "TPX-0110"


@dataclass(frozen=True)
class EntryPoint:
    """What one signature is captured from."""

    model: Model
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    dynamic_shapes: Shapes | None = None


# Draws (args, kwargs) for a signature from a seed; None where the source has no say.
Draw: TypeAlias = Callable[[str, int], Example | None]


@dataclass(frozen=True)
class Source:
    """A model that was found, with example inputs for each of its signatures.

    Attributes:
        text: as the user named it.
        name: a short name for files made from it.
        model_file: the file that source locations are relative to.
        entry_points: by signature name; they share one model's weights.
        draw: the source's own seeded inputs, if it has any.
    """

    text: str
    name: str
    model_file: Path | None
    entry_points: Mapping[str, EntryPoint]
    draw: Draw | None = field(default=None, repr=False)

    def captures(self) -> dict[str, Captured]:
        """Capture every signature.

        Raises:
            TpuExportError: as `capture` does.
        """
        return {name: self._capture(name) for name in self.entry_points}

    def second_inputs(self, captured: Captured, seed: int) -> Example:
        """Return seeded (args, kwargs): the source's own, else like the example."""
        drawn = self.draw(captured.name, seed) if self.draw else None
        return drawn if drawn is not None else second_inputs(captured, seed)

    def _capture(self, name: str) -> Captured:
        entry = self.entry_points[name]
        captured = capture(
            entry.model,
            entry.args,
            entry.kwargs,
            dynamic_shapes=entry.dynamic_shapes,
            name=name,
        )
        return replace(captured, model_file=self.model_file or captured.model_file)


class ZooEntry(Protocol):
    """What the model zoo gives: it may not import this package, so a protocol."""

    @property
    def name(self) -> str:
        """The entry's name in the zoo."""

    @property
    def model_file(self) -> Path | None:
        """The file with the builder."""

    def build(self) -> tuple[Model, tuple[object, ...], dict[str, object]]:
        """Return the model and example args and kwargs."""

    def second_inputs(self, seed: int) -> Example | None:
        """Return the entry's own seeded inputs, if it has any."""


def resolve(text: str, zoo: Callable[[str], ZooEntry] | None = None) -> Source:
    """Find the model that `text` names, and build it.

    A path.py is run, and a path.pt2 can run code on load: name files you trust.

    Args:
        text: one of the forms in FORMS.
        zoo: returns an entry of the model zoo, or raises for an unknown name.

    Raises:
        UnknownSourceError: the text has none of the forms.
        TpuExportError: a subclass for each way in which a form can fail.
    """
    from tpu_export.exporter.sources_hf import hugging_face_source
    from tpu_export.exporter.sources_python import python_source

    kind, colon, rest = text.partition(":")
    if kind == "zoo" and colon and zoo is not None:
        return _zoo_source(text, zoo(rest))
    if kind == "hf" and colon:
        return hugging_face_source(text, Path(rest))
    path, factory = _split_factory(text)
    if path.suffix == ".py":
        return python_source(text, path, factory)
    if path.suffix == ".pt2" and factory is None:
        entry = EntryPoint(load_program(path))
        return Source(text, path.stem, None, {"forward": entry})
    raise UnknownSourceError(
        f"{text!r} names no model", hint=f"a model is one of: {FORMS}"
    )


def _zoo_source(text: str, entry: ZooEntry) -> Source:
    model, args, kwargs = entry.build()
    return Source(
        text=text,
        name=entry.name,
        model_file=entry.model_file,
        entry_points={"forward": EntryPoint(model, args, kwargs)},
        draw=lambda _, seed: entry.second_inputs(seed),
    )


def _split_factory(text: str) -> tuple[Path, str | None]:
    """Split "path.py:factory"; a colon elsewhere belongs to the path."""
    head, colon, tail = text.rpartition(":")
    if colon and head.endswith(".py"):
        return Path(head), tail
    return Path(text), None
