"""An artifact against what eager gave when it was exported."""

from __future__ import annotations

from pathlib import Path

from tpu_export.parity.ladder import row
from tpu_export.parity.metrics import recorded_limits
from tpu_export.parity.report import ParityReport, ParityRow
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.program import Program, load
from tpu_export.runtime.signature import Signature
from tpu_export.runtime.tensors import Array
from tpu_export.runtime.trees import flatten, unflatten


class NothingRecordedError(TpuExportError):
    """The artifact holds no recorded inputs and outputs."""

    code = "TPX-0703"


def recorded(path: Path, tolerance: float | None = None) -> ParityReport:
    """Replay the recorded inputs of every signature, and compare with eager's outputs.

    Raises:
        NothingRecordedError: none was recorded, or it was too large to keep.
    """
    artifact = Artifact(path)
    rows: list[ParityRow] = []
    with load(path, device="cpu") as program:
        for name in program.signatures:
            entry = f"parity/{name}.safetensors"
            if entry in artifact:
                arrays = artifact.tensors(entry, verify=True)
                rows += _replay(program, name, arrays, tolerance)
    if not rows:
        raise NothingRecordedError(
            f"{path} holds no recorded outputs",
            hint="name the model too: tpu-export parity MODEL --artifact FILE",
        )
    return ParityReport(tuple(rows))


def _replay(
    program: Program, name: str, arrays: dict[str, Array], tolerance: float | None
) -> list[ParityRow]:
    signature = program.signatures[name]
    program.reset_state()
    inputs = [arrays[f"inputs/{spec.name}"].copy() for spec in signature.inputs]
    given = {p.name: unflatten(p.tree, inputs) for p in signature.parameters}
    result = program[name](**given)
    outputs, limits = _leaves(signature, result), recorded_limits(arrays)
    return [
        row(
            name,
            spec.name,
            f"tpuexe on {program.device}",
            "recorded example",
            outputs[index],
            arrays[f"outputs/{spec.name}"],
            limits.get(spec.name) if tolerance is None else tolerance,
        )
        for index, spec in enumerate(signature.outputs)
    ]


def _leaves(signature: Signature, result: object) -> dict[int, Array]:
    leaves: dict[int, Array] = {}

    def put(index: int, _: str, leaf: Array) -> None:
        leaves[index] = leaf

    flatten(signature.output_tree, result, "result", put)
    return leaves
