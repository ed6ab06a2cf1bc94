"""The zoo: zoo.toml as typed entries that can build their model."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from tpu_export.runtime.errors import MissingExtraError, TpuExportError

Example: TypeAlias = tuple[tuple[object, ...], dict[str, object]]
Call: TypeAlias = dict[str, np.ndarray[Any, np.dtype[Any]]]
Built: TypeAlias = tuple[torch.nn.Module, tuple[object, ...], dict[str, object]]

_FOLDER = Path(__file__).parent


class UnknownZooModelError(TpuExportError):
    """The zoo has no entry of that name."""

    code = "TPX-0801"


@dataclass(frozen=True)
class Tolerance:
    """The largest allowed error of an output element, and why it is not the default."""

    limit: float
    reason: str


@dataclass(frozen=True)
class ZooEntry:
    """A model of the zoo.

    Attributes:
        builder: "module:function" in model_zoo.
        inputs: what the example is, in words.
        tolerance: by target ("cloud-tpu", "litert"); {} = the defaults.
        packages: distributions that must be installed.
        heavy: whether it needs more than a gigabyte or a minute.
        quantize: recipes that are measured on its real calls.
    """

    name: str
    description: str
    builder: str
    weights: Literal["pretrained", "random"]
    inputs: str
    licence: str
    packages: tuple[str, ...]
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    heavy: bool = False
    quantize: tuple[str, ...] = ()

    @property
    def model_file(self) -> Path:
        """The file with the builder."""
        return _FOLDER / f"{self.builder.partition(':')[0]}.py"

    def build(self) -> Built:
        """Return the model in eval mode, and example args and kwargs.

        Raises:
            MissingExtraError: a package of the entry is not installed.
        """
        return self._function()(0)

    def second_inputs(self, seed: int) -> Example | None:
        """Return other args and kwargs of the same shapes, where the entry has its own.

        Values like the example's serve the others.
        """
        name = f"{self.builder.partition(':')[2]}_inputs"
        draw = getattr(self._module(), name, None)
        if draw is None:
            return None
        args, kwargs = draw(seed)
        return args, kwargs

    def calls(self) -> list[Call]:
        """Return real inputs by name, for recipes: of shapes like the example's.

        Raises:
            MissingExtraError: a package of the entry is not installed.
        """
        self._function()
        calls: Callable[[], list[Call]] = getattr(
            self._module(), f"{self.builder.partition(':')[2]}_calls"
        )
        return calls()

    def missing(self) -> tuple[str, ...]:
        """Return the packages of the entry that are not installed."""
        return tuple(name for name in self.packages if not _is_installed(name))

    def _function(self) -> Callable[[int], Built]:
        for package in self.missing():
            raise MissingExtraError(package, "zoo")
        function: Callable[[int], Built] = getattr(
            self._module(), self.builder.partition(":")[2]
        )
        return function

    def _module(self) -> object:
        return import_module(f"tpu_export.model_zoo.{self.builder.partition(':')[0]}")


def names() -> tuple[str, ...]:
    """Return the names of all entries, in the order of zoo.toml."""
    return tuple(_entries())


def entry(name: str) -> ZooEntry:
    """Return an entry.

    Raises:
        UnknownZooModelError: there is none of that name; near names are given.
    """
    known = _entries()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else f"the zoo has {', '.join(known)}"
    )
    raise UnknownZooModelError(f"the zoo has no model {name!r}", hint=hint)


@cache
def _entries() -> dict[str, ZooEntry]:
    tables = tomllib.loads((_FOLDER / "zoo.toml").read_text(encoding="utf-8"))
    return {name: _entry(name, table) for name, table in tables.items()}


def _entry(name: str, table: dict[str, object]) -> ZooEntry:
    fields = dict(table)
    packages = fields.pop("packages")
    tolerance = fields.pop("tolerance", {})
    recipes = fields.pop("quantize", ())
    assert isinstance(packages, list)
    assert isinstance(recipes, list | tuple)
    assert isinstance(tolerance, dict)
    limits = {target: Tolerance(**value) for target, value in tolerance.items()}
    return ZooEntry(
        name=name,
        packages=tuple(packages),
        tolerance=limits,
        quantize=tuple(recipes),
        **fields,  # type: ignore[arg-type]  # zoo.toml is ours; a test checks it
    )


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
