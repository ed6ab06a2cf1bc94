"""Convert one job directory: ``python -m tpu_export.converters.litert.worker DIRECTORY``.

A process of its own, because the converter can crash. It imports neither torch nor jax.
Reads job.json, SIGNATURE.mlirbc and weights/; writes model.tflite, or error.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpu_export.converters.litert.adapter import (
    Conversion,
    SignatureJob,
    names_of,
)
from tpu_export.converters.litert.exchange import Array, map_arrays


def main(argv: Sequence[str]) -> int:
    """Convert the job in a directory."""
    folder = Path(argv[1])
    signatures = json.loads((folder / "job.json").read_text())
    conversion = Conversion()
    weights = map_arrays(folder / "weights")
    jobs = [_job(folder, name, spec, weights) for name, spec in signatures.items()]
    try:
        for job in jobs:
            conversion.add(job, conversion.parse(job.module))
        conversion.convert(folder / "model.tflite")
    except (RuntimeError, ValueError) as error:  # what the bindings raise
        (folder / "error.json").write_text(json.dumps({"failed": str(error)}))
        return 1
    return 0


def _job(
    folder: Path, name: str, spec: dict[str, Any], weights: Mapping[str, Array]
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
