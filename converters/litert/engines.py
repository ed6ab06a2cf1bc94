"""Ask a LiteRT engine, in a process of its own, for any number of calls at once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from tpu_export.converters.litert.errors import (
    LiteRtCrashedError,
    LiteRtUnloadableError,
)
from tpu_export.converters.litert.exchange import Array, map_arrays, write_arrays
from tpu_export.converters.litert.process import run_module

Engine: TypeAlias = Literal["interpreter", "compiled"]
ENGINES: tuple[Engine, ...] = ("interpreter", "compiled")
_ENGINE = "tpu_export.converters.litert.engine"


@dataclass(frozen=True)
class Calls:
    """Calls of one signature, in order.

    Attributes:
        inputs: of each call, by LiteRT's names.
        carried: outputs that the next call takes as the inputs of the same names.
    """

    signature: str
    inputs: Sequence[Mapping[str, Array]]
    carried: Sequence[str] = ()


def run_calls(
    path: Path, engine: Engine, sequences: Sequence[Calls]
) -> list[list[dict[str, Array]]]:
    """Start the engine once and return the outputs of every call of every sequence.

    Raises:
        LiteRtCrashedError: the engine died.
        LiteRtUnloadableError: it cannot load the file, or cannot run a call.
    """
    with tempfile.TemporaryDirectory(prefix="tpu-export-litert-") as name:
        folder = Path(name)
        _write_request(folder, sequences)
        status, words = run_module(_ENGINE, str(path), engine, str(folder))
        if status != 0:
            raise _explained(engine, sequences, status, words)
        return [
            [_outputs(folder / f"outputs-{i}-{j}") for j in range(len(s.inputs))]
            for i, s in enumerate(sequences)
        ]


def _write_request(folder: Path, sequences: Sequence[Calls]) -> None:
    request = [
        {
            "signature": s.signature,
            "calls": len(s.inputs),
            "carried": list(s.carried),
        }
        for s in sequences
    ]
    (folder / "request.json").write_text(json.dumps(request))
    for i, sequence in enumerate(sequences):
        for j, inputs in enumerate(sequence.inputs):
            write_arrays(folder / f"inputs-{i}-{j}", inputs)


def _outputs(folder: Path) -> dict[str, Array]:
    return {name: np.array(array) for name, array in map_arrays(folder).items()}


def _explained(
    engine: Engine, sequences: Sequence[Calls], status: int, words: str
) -> Exception:
    names = ", ".join(dict.fromkeys(repr(s.signature) for s in sequences))
    if status < 0:
        return LiteRtCrashedError(
            f"LiteRT's {engine} died by signal {-status} on signature {names}",
            hint="export for cloud-tpu only, and report the model with "
            "`tpu-export doctor`",
        )
    return LiteRtUnloadableError(
        f"LiteRT's {engine} cannot run signature {names}: {words}",
        hint="the ops it names need another form; `tpu-export ops MODEL` lists them",
    )
