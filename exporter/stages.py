"""Captured -> Lowered -> Compiled: a frozen value a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tpu_export.converters.stablehlo.lowering import lower as lower_program
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.converters.stablehlo.registry import Target
from tpu_export.converters.tpu.compile import CompiledTarget, compile_program
from tpu_export.converters.tpu.compile import Target as CompileTarget
from tpu_export.converters.tpu.cost import CostReport
from tpu_export.converters.tpu.topologies import parse_topology
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.save import save
from tpu_export.runtime.stablehlo import module_text

DEFAULT_TOPOLOGIES = ("v5e-1", "v6e-1")


@dataclass(frozen=True)
class Lowered:
    """One signature as StableHLO. It promises nothing about any chip yet."""

    captured: Captured
    program: LoweredProgram

    @property
    def mlir_bytes(self) -> bytes:
        """The portable StableHLO artifact of main, as TPU compiles it."""
        return self.program.main.module("tpu")

    def text(self) -> str:
        """Return main as StableHLO text, with module paths and source lines."""
        return module_text(self.mlir_bytes)

    def compile(
        self, topologies: Sequence[str] = DEFAULT_TOPOLOGIES, *, cpu: bool = True
    ) -> Compiled:
        """Compile ahead of time for TPU topologies, and for this host's CPU.

        Raises:
            UnknownTopologyError: a name is neither Cloud's nor libtpu's.
            OutOfMemoryError: the program does not fit the chip's HBM.
        """
        return compile_signatures(
            {self.program.signature.name: self}, topologies, cpu=cpu
        )

    def save(self, path: str | Path) -> Path:
        """Write a .tpuexe with the portable program and a CPU executable."""
        return self.compile(()).save(path)


@dataclass(frozen=True)
class Compiled:
    """Signatures with executables. It promises that they compile, not that they run."""

    signatures: Mapping[str, Lowered]
    targets: Mapping[str, tuple[CompiledTarget, ...]] = field(repr=False)

    @property
    def report(self) -> dict[str, dict[str, CostReport]]:
        """The compiler's estimates: signature -> topology -> CostReport."""
        return {
            name: {t.topology: t.report for t in targets if t.report is not None}
            for name, targets in self.targets.items()
        }

    def save(self, path: str | Path) -> Path:
        """Write the .tpuexe atomically and return its path."""
        programs = {name: low.program for name, low in self.signatures.items()}
        with save(Path(path), programs, self.targets) as pending:
            pending.commit()
        return Path(path)


def lower(captured: Captured, *, target: Target = "xla") -> Lowered:
    """Lower one captured signature.

    Raises:
        UnsupportedOpsError: ops without a rule or a decomposition, all at once.
    """
    program = lower_program(
        captured.program,
        captured.signature,
        captured.symbol_names,
        target=target,
        model_file=captured.model_file,
    )
    return Lowered(captured, program)


def compile_signatures(
    signatures: Mapping[str, Lowered],
    topologies: Sequence[str] = DEFAULT_TOPOLOGIES,
    *,
    cpu: bool = True,
) -> Compiled:
    """Compile several signatures for the same topologies."""
    wanted: list[CompileTarget] = [parse_topology(name) for name in topologies]
    if cpu:
        wanted.append("cpu")
    targets = {
        name: tuple(
            compile_program(low.program, wanted, dims=low.captured.example_dims())
        )
        for name, low in signatures.items()
    }
    return Compiled(signatures, targets)
