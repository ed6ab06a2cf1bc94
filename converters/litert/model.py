"""A converted model: a .tflite on disk that has loaded and run in both LiteRT engines."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.engines import Calls, Engine, run_calls
from tpu_export.converters.litert.errors import LiteRtInputError
from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.flatbuffer import Histogram
from tpu_export.converters.litert.integer_ops import IntegerOps
from tpu_export.converters.litert.sizes import Sizes, chosen, unfit
from tpu_export.converters.litert.transposes import Transpose
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.signature import Signature


class LiteRtWriteError(TpuExportError):
    """The .tflite cannot be written where it should."""

    code = "TPX-0607"


@dataclass(frozen=True)
class LiteRtReport:
    """What a conversion made.

    Attributes:
        size: bytes of the .tflite.
        seconds: of the conversion, without lowering.
        ops: count of each LiteRT op, per signature.
        transposes: what each TRANSPOSE moves and why, per signature.
        integers: what became of quantizations in the model itself.
    """

    size: int
    seconds: float
    ops: Mapping[str, Histogram]
    transposes: Mapping[str, Sequence[Transpose]] = field(default_factory=dict)
    integers: IntegerOps = field(default_factory=IntegerOps)


@dataclass(frozen=True)
class LiteRtModel:
    """A .tflite. Its file is temporary, and goes with this object; save() keeps it.

    State slots are inputs and outputs named "state.NAME"; an input that forward() writes to
    has an output "input.NAME".

    Attributes:
        signatures: of the file, by name.
        sizes: of the model's dynamic dimensions, by signature.
    """

    path: Path
    signatures: Mapping[str, Signature]
    report: LiteRtReport
    sizes: Mapping[str, Sizes] = field(default_factory=dict)

    def save(self, path: str | Path) -> Path:
        """Write the .tflite atomically and return its path.

        Raises:
            LiteRtWriteError: the file cannot be written.
        """
        final = Path(path)
        partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
        try:
            shutil.copyfile(self.path, partial)
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(final)
        except OSError as error:
            raise LiteRtWriteError(
                f"cannot write {final}: {error.strerror or error}",
                hint="choose another --output, create its folder, or free some space",
            ) from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
        return final

    def run(
        self,
        *,
        signature: str | None = None,
        engine: Engine = "interpreter",
        **inputs: Any,
    ) -> dict[str, Array]:
        """Run a signature once in a worker process; returns outputs by name.

        Args:
            signature: a name in the file, or in the model: then the shapes of the inputs
                choose among its sizes. By default the model's only one, or "forward".
            engine: LiteRT's Interpreter or its CompiledModel, both on the CPU.
            inputs: arrays by input name (``**{"cache.0.key": …}`` for nested ones).

        Raises:
            LiteRtInputError: names, shapes, dtypes, or values of indices do not fit.
            LiteRtUnloadableError: the engine refuses the file.
        """
        arrays = {key: np.asarray(value) for key, value in inputs.items()}
        name = chosen(self.signatures, self.sizes, signature, arrays)
        self._check(name, arrays)
        ((outputs,),) = run_calls(self.path, engine, [Calls(name, [arrays])])
        return outputs

    def _check(self, name: str, arrays: Mapping[str, Array]) -> None:
        specs = input_specs(self.signatures[name])
        problems = [f"unknown input {key!r}" for key in arrays if key not in specs]
        problems += [f"missing input {key!r}" for key in specs if key not in arrays]
        problems += [
            f"{key} has dtype {array.dtype}, expected {specs[key]}"
            for key, array in arrays.items()
            if key in specs and array.dtype.name != specs[key]
        ]
        problems += unfit(self.signatures[name], arrays)
        if problems:
            wanted = ", ".join(f"{key}: {dtype}" for key, dtype in specs.items())
            raise LiteRtInputError("; ".join(problems), hint=f"{name} takes {wanted}")


def input_specs(signature: Signature) -> dict[str, str]:
    """Return the dtype of every input of a .tflite signature, state slots included."""
    return {
        **{f"state.{slot.name}": slot.dtype for slot in signature.state},
        **{spec.name: spec.dtype for spec in signature.inputs},
    }
