"""The weights of an artifact: mapped from the file, replaced on request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.tensors import Array


class WeightUpdateError(TpuExportError):
    """New weights that do not fit the program's."""

    code = "TPX-0506"


class Weights:
    """Raw weights by name. Tied names share one array, also after an update."""

    def __init__(self, artifact: Artifact) -> None:
        self._refs = artifact.manifest.weights
        entries = {ref.entry for ref in self._refs.values()}
        files = {name: artifact.tensors(name) for name in entries}
        self._arrays: dict[tuple[str, str], Array] = {}
        for name, ref in self._refs.items():
            array = files[ref.entry].get(ref.key)
            if (
                array is None
                or array.shape != ref.shape
                or array.dtype.name != ref.dtype
            ):
                raise ArtifactCorruptedError("4", f"weight {name!r} is not as stated")
            self._arrays[ref.entry, ref.key] = array

    def __getitem__(self, name: str) -> Array:
        ref = self._refs[name]
        return self._arrays[ref.entry, ref.key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._refs)

    def update(self, values: Mapping[str, Any], allowed: Collection[str]) -> None:
        """Replace weights: all of `values`, or on an error none.

        Raises:
            WeightUpdateError: unknown names, other shapes or dtypes: all of them.
        """
        problems, fresh = [], {}
        for name, value in values.items():
            ref = self._refs.get(name)
            array = np.array(value, order="C")
            if ref is None or name not in allowed:
                problems.append(f"there is no weight {name!r}")
            elif array.shape != ref.shape or array.dtype.name != ref.dtype:
                problems.append(
                    f"{name} is {array.dtype}{list(array.shape)}, "
                    f"expected {ref.dtype}{list(ref.shape)}"
                )
            else:
                fresh[ref.entry, ref.key] = array
        if problems:
            raise WeightUpdateError(
                "; ".join(problems),
                hint="program.weight_names lists what can be replaced",
            )
        self._arrays = {**self._arrays, **fresh}  # readers see all or none
