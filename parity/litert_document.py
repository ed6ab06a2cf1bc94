"""The JSON document in a .tflite: what the file is, and what proves it.

Nothing in it depends on the time or the place, so that a rebuild is the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

import numpy as np
import torch

from tpu_export import __version__
from tpu_export.converters.litert.document import VERSION
from tpu_export.converters.litert.engines import Calls
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.parity.eager import Array
from tpu_export.parity.job import Job
from tpu_export.parity.normalization import read_normalization
from tpu_export.parity.references import Reference
from tpu_export.parity.report import ParityRow
from tpu_export.runtime.codec import encode
from tpu_export.runtime.signature import RNG, sizes_text

_PACKAGES = ("torch", "jax", "litert-converter", "ai-edge-litert")


@dataclass(frozen=True)
class Known:
    """What an export has learned of a file by the time that it is written.

    Attributes:
        references: eager's results, of each signature; none without parity.
        trials: a call of each signature of the float file.
        state: initial values by name.
        rows: of the proof.
        quantization: recipe and verdict, as JSON-able values.
        notes: what is said after the export; gets what was left out.
    """

    programs: Mapping[str, LoweredProgram]
    references: Sequence[Reference]
    trials: Sequence[Calls]
    state: Mapping[str, Array]
    rows: Sequence[ParityRow] = ()
    quantization: Mapping[str, Any] | None = None
    notes: list[str] = field(default_factory=list)


def is_random(program: LoweredProgram) -> bool:
    """Whether a signature draws random numbers, which torch draws otherwise."""
    return any(slot.name == RNG for slot in program.signature.state)


def document(job: Job, known: Known, golden: Sequence[str]) -> dict[str, object]:
    """Return the document of an export; what was not asked for is not in it.

    Args:
        golden: the signatures whose golden arrays go into the file.
    """
    annotations = job.litert.annotations
    labels, licence = annotations.read()
    dims = {name: c.example_dims() for name, c in job.signatures.items()}
    signatures = {name: p.signature for name, p in known.programs.items()}
    quantization = _quantization(known.quantization)
    found = {
        "version": VERSION,
        "producers": _producers(quantized=quantization is not None),
        "signatures": _signatures(
            known, {} if job.litert.dynamic_dims == "symbolic" else dims
        ),
        "parity": _parity(known.rows),
        "quantization": quantization,
        "labels": list(labels),
        "labelled": annotations.labelled(signatures, dims),
        "licence": licence,
        "preprocessing": {
            name: asdict(read_normalization(text)) | {"dtype": "uint8"}
            for name, text in job.litert.preprocess.items()
        },
        "golden": {name: _golden(known, name) for name in golden},
    }
    return {key: value for key, value in found.items() if value}


def _producers(*, quantized: bool) -> dict[str, str]:
    found = {"tpu-export": __version__}
    for package in (*_PACKAGES, *(["ai-edge-quantizer"] if quantized else [])):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _signatures(
    known: Known, dims: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, object]]:
    hashes: dict[int, str] = {}
    found = {}
    for name, program in known.programs.items():
        weights = program.weights
        if id(weights) not in hashes:
            hashes[id(weights)] = _digest(weights)
        module = program.main.module("cpu")
        found[name] = {
            "torch": encode(program.signature),
            "sizes": sizes_text(dims.get(name, {})),
            "stablehlo": hashlib.sha256(module).hexdigest(),
            "weights": hashes[id(weights)],
            "state": {
                slot.name: value
                for slot in program.signature.state
                if (value := _constant(known.state[slot.name])) is not None
            },
        }
    return found


def _digest(weights: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of all weights: name, dtype, shape and bytes of each."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(as_numpy(weights[name]))
        digest.update(f"{name} {array.dtype.name} {list(array.shape)}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _constant(array: Array) -> bool | int | float | None:
    """Return the value that all elements have; None where there is none, or no number."""
    if not array.size or (array != array.flat[0]).any():
        return None
    value: bool | int | float = array.flat[0].item()
    return value if isfinite(value) else None


def _parity(rows: Sequence[ParityRow]) -> dict[str, object]:
    """Return how far the float file was from torch eager at worst, in each engine."""
    worst: dict[str, ParityRow] = {}
    for row in rows:
        if row.rung not in worst or row.max_rel > worst[row.rung].max_rel:
            worst[row.rung] = row
    kept = ("signature", "output", "inputs", "max_abs", "max_rel", "threshold")
    return {
        rung: {
            "comparisons": sum(r.rung == rung for r in rows),
            "worst": {key: _finite(asdict(row)[key]) for key in kept},
        }
        for rung, row in worst.items()
    }


_SAID_OF_RECIPE = ("recipe", "rules", "sha256", "data", "clamped", "lint")


def _quantization(found: Mapping[str, Any] | None) -> dict[str, object] | None:
    """Return recipe, coverage and verdict; no times, which are never the same twice."""
    if found is None:
        return None
    return {
        **{key: found[key] for key in _SAID_OF_RECIPE},
        "agreements": [
            {key: _finite(value) for key, value in row.items()}
            for row in found["verdict"]["agreements"]
            if row["file"] == "quantized"
        ],
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value


def _golden(known: Known, name: str) -> str:
    """Say whose outputs the golden ones are."""
    own = known.quantization is not None or is_random(known.programs[name])
    return "this file" if own else "torch eager"
