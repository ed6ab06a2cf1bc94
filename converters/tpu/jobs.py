"""What a worker is asked and what it answers: files in a directory, JSON and raw bytes.

A job directory holds job.json, main.mlirbc and perhaps prepare.mlirbc. A worker adds
main.bin, perhaps prepare.bin, and last of all result.json, or error.json instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tpu_export.converters.tpu.cost import CostReport
from tpu_export.runtime.manifest import Compiler
from tpu_export.runtime.signature import FunctionSpec, Slot, sizes_text

Platform: TypeAlias = Literal["tpu", "cpu"]
Layouts: TypeAlias = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True)
class Job:
    """One program for one target.

    Attributes:
        platform: "tpu" or "cpu".
        topology: libtpu's name, or "host".
        description: arguments of get_topology_desc; empty for cpu.
        generation: the chip; "" for cpu.
        hbm_bytes: what the device has; 0 for cpu.
        dims: sizes of the dynamic dimensions.
        options: effective compiler options.
        main: calling convention of main.
        prepare: calling convention of prepare, if the program has one.
    """

    platform: Platform
    topology: str
    description: Mapping[str, object]
    generation: str
    hbm_bytes: int
    dims: Mapping[str, int]
    options: Mapping[str, str]
    main: FunctionSpec
    prepare: FunctionSpec | None

    @property
    def name(self) -> str:
        """What it is called in messages: "v5e:1x1 batch=8"."""
        return f"{self.topology} {sizes_text(self.dims)}".rstrip()

    def to_json(self) -> dict[str, object]:
        """Return plain data for json."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Job:
        """Rebuild what to_json gave."""
        main, prepare = _spec(data["main"]), data["prepare"]
        return cls(
            **{**data, "main": main, "prepare": _spec(prepare) if prepare else None}
        )


@dataclass(frozen=True)
class Result:
    """What a worker found, beside the executables' bytes."""

    layouts: Layouts
    compiler: Compiler
    report: CostReport | None

    def to_json(self) -> dict[str, object]:
        """Return plain data for json."""
        report = self.report.to_json() if self.report else None
        return {
            "layouts": self.layouts,
            "compiler": asdict(self.compiler),
            "report": report,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Result:
        """Rebuild what to_json gave."""
        compiler = data["compiler"]
        features = tuple(compiler["host_features"])
        report = data["report"]
        return cls(
            tuple(
                order if order is None else tuple(order) for order in data["layouts"]
            ),
            Compiler(**{**compiler, "host_features": features}),
            CostReport.from_json(report) if report else None,
        )


def write_job(directory: Path, job: Job, modules: Mapping[str, bytes]) -> None:
    """Write a job and its portable modules ("main", "prepare")."""
    for name, module in modules.items():
        (directory / f"{name}.mlirbc").write_bytes(module)
    (directory / "job.json").write_text(json.dumps(job.to_json()))


def read_job(directory: Path) -> tuple[Job, dict[str, bytes]]:
    """Read what write_job wrote."""
    job = Job.from_json(json.loads((directory / "job.json").read_text()))
    modules = {path.stem: path.read_bytes() for path in directory.glob("*.mlirbc")}
    return job, modules


def _spec(data: Mapping[str, Any]) -> FunctionSpec:
    arguments, results = data["arguments"], data["results"]
    return FunctionSpec(tuple(map(_slot, arguments)), tuple(map(_slot, results)))


def _slot(data: Mapping[str, Any]) -> Slot:
    return Slot(**{**data, "shape": tuple(data["shape"])})
