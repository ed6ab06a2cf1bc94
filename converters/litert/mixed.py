"""A float .tflite quantized with one recipe, but for the modules that stay in float."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import CASTS, Graph, read_graph

# Names of ai_edge_quantizer.recipe, by ours.
RECIPES = {
    "dynamic-int8": "dynamic_wi8_afp32",
    "weight-int8": "weight_only_wi8_afp32",
    "weight-int4": "weight_only_wi4_afp32",
    "static-int8": "static_wi8_ai8",
    "static-int16": "static_wi8_ai16",
}


@dataclass(frozen=True)
class Mixed:
    """Quantizes one signature of a file into a folder; calibrates once.

    Attributes:
        plain: the float file; recipe: a key of RECIPES.
        data: inputs to calibrate on, by names of the signature.
    """

    plain: Path
    recipe: str
    signature: str
    data: Sequence[Mapping[str, Array]]
    folder: Path

    def __call__(self, regions: Sequence[str]) -> Path:
        """Quantize with the modules of some regions in float."""
        job = self._job(regions)
        with _silent():
            calibrated = self._calibrated if job.need_calibration else None
            result = job.quantize(calibrated, enable_progress_report=False)
        path = self.folder / f"{len(list(self.folder.iterdir()))}.tflite"
        path.write_bytes(result.quantized_model)
        return path

    @cached_property
    def _graph(self) -> Graph:
        return read_graph(self.plain, self.signature)

    @cached_property
    def _calibrated(self) -> Any:
        return self._job(()).calibrate({self.signature: [dict(d) for d in self.data]})

    def _job(self, regions: Sequence[str]) -> Any:
        from ai_edge_quantizer import quantizer, recipe

        job = quantizer.Quantizer(str(self.plain))
        job.load_quantization_recipe(getattr(recipe, RECIPES[self.recipe])())
        names = self._names(regions)
        if names:
            job.update_quantization_recipe(
                f"^(?:{'|'.join(map(re.escape, names))});?$",
                recipe.TFLOperationName.ALL_SUPPORTED,
                algorithm_key="no_quantize",
            )
        return job

    def _names(self, regions: Sequence[str]) -> list[str]:
        """Return the names that the quantizer knows the ops of regions by."""
        tensors = self._graph.subgraph.tensors
        found = {
            tensors[node.outputs[0]].name.decode()
            for node in self._graph.nodes
            if node.name not in CASTS
            and any(covers(region, node.place.module) for region in regions)
        }
        return sorted(found)


def covers(region: str, module: str) -> bool:
    """Whether a module is in a region: it is that module, or below it.

    >>> covers("blocks.1", "blocks.1.up"), covers("blocks.1", "blocks.10")
    (True, False)
    """
    return module == region or module.startswith(f"{region}.")


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the quantizer's progress bars and the warning of its interpreter away."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore", UserWarning)
        yield
