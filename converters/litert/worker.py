"""Convert one job directory: ``python -m tpu_export.converters.litert.worker DIRECTORY``.

A process of its own, because the converter can crash. It imports neither torch nor jax.
Reads job.json, SIGNATURE.mlirbc and weights/; writes model.tflite with markers for the weights
that stand-ins were given for, what they stand for in markers.json and constants/, what became of
quantizations in the model in integers.json, or error.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.adapter import (
    Conversion,
    SignatureJob,
    Weight,
    names_of,
)
from tpu_export.converters.litert.exchange import map_arrays, write_arrays
from tpu_export.converters.litert.standins import StandIn
from tpu_export.converters.litert.withdrawal import ValuesNeededError


def main(argv: Sequence[str]) -> int:
    """Convert the job in a directory."""
    folder = Path(argv[1])
    job = json.loads((folder / "job.json").read_text())
    conversion = Conversion()
    weights: dict[str, Weight] = {**map_arrays(folder / "weights")}
    for key, (dtype, shape) in job["stand-ins"].items():
        weights[key] = StandIn(key, np.dtype(dtype), tuple(shape))
    signatures = [_job(folder, n, s, weights) for n, s in job["signatures"].items()]
    try:
        for signature in signatures:
            conversion.add(signature, conversion.parse(signature.module))
        markers = conversion.convert(folder / "model.tflite")
    except ValuesNeededError as error:
        return _fail(folder, {"needed": sorted(error.keys), "op": error.op})
    except (RuntimeError, ValueError) as error:  # what the bindings raise
        return _fail(folder, {"failed": str(error)})
    (folder / "markers.json").write_text(json.dumps(markers.expressions))
    (folder / "integers.json").write_text(json.dumps(conversion.integers.found))
    write_arrays(folder / "constants", markers.constants)
    return 0


def _fail(folder: Path, why: Mapping[str, object]) -> int:
    (folder / "error.json").write_text(json.dumps(why))
    return 1


def _job(
    folder: Path, name: str, spec: dict[str, Any], weights: Mapping[str, Weight]
) -> SignatureJob:
    return SignatureJob(
        name=name,
        module=(folder / f"{name}.mlirbc").read_bytes(),
        weights=[weights[key] for key in spec["weights"]],
        inputs=names_of(spec, "arguments"),
        outputs=names_of(spec, "results"),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
