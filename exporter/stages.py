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
from tpu_export.exporter import edge_sizes
from tpu_export.exporter.buckets import Buckets, check_buckets, compiled_sizes
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.save import save
from tpu_export.runtime.signature import sizes_text
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
        self,
        topologies: Sequence[str] = DEFAULT_TOPOLOGIES,
        *,
        cpu: bool = True,
        buckets: Buckets | None = None,
    ) -> Compiled:
        """Compile ahead of time for TPU topologies, and for this host's CPU.

        Args:
            topologies: TPU slices to compile for.
            cpu: whether to compile for this host's CPU too.
            buckets: sizes of dynamic dimensions, as {"batch": [1, 8], "seq": [128]}: each
                combination gets executables. A dimension without any has the example's.

        Raises:
            UnknownTopologyError: a name is neither Cloud's nor libtpu's.
            BucketError: the buckets do not fit the signature.
            OutOfMemoryError: the program does not fit the chip's HBM.
        """
        return compile_signatures(
            {self.program.signature.name: self}, topologies, cpu=cpu, buckets=buckets
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
        """The compiler's estimates: signature -> topology -> CostReport.

        Where there are several sizes, they follow the topology: "v5e:1x1 batch=8".
        """
        return {
            name: {
                _target_name(target, targets): target.report
                for target in targets
                if target.report is not None
            }
            for name, targets in self.targets.items()
        }

    def save(self, path: str | Path) -> Path:
        """Write the .tpuexe atomically and return its path."""
        programs = {name: low.program for name, low in self.signatures.items()}
        with save(Path(path), programs, self.targets) as pending:
            pending.commit()
        return Path(path)


def _target_name(target: CompiledTarget, others: Sequence[CompiledTarget]) -> str:
    several = any(other.dims != target.dims for other in others)
    sizes = [sizes_text(target.dims)] if several else []
    return " ".join([target.topology, *sizes])


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
        borders=captured.borders,
    )
    return Lowered(captured, edge_sizes.refinable(program, captured.example_dims()))


def compile_signatures(
    signatures: Mapping[str, Lowered],
    topologies: Sequence[str] = DEFAULT_TOPOLOGIES,
    *,
    cpu: bool = True,
    buckets: Buckets | None = None,
) -> Compiled:
    """Compile several signatures for the same topologies.

    Args:
        signatures: by name.
        topologies: TPU slices to compile for.
        cpu: whether to compile for this host's CPU too.
        buckets: sizes of dynamic dimensions; they hold for each signature that has the
            dimension.

    Raises:
        BucketError: the buckets fit no signature.
    """
    buckets = buckets or {}
    check_buckets({name: low.captured for name, low in signatures.items()}, buckets)
    wanted: list[CompileTarget] = [parse_topology(name) for name in topologies]
    if cpu:
        wanted.append("cpu")
    targets = {
        name: tuple(
            compile_program(
                low.program, wanted, dims=compiled_sizes(low.captured, buckets)
            )
        )
        if not low.program.counts  # sizes that the data decides have no executable
        else ()
        for name, low in signatures.items()
    }
    return Compiled(signatures, targets)
