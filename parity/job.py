"""What to export and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tpu_export.exporter.buckets import Buckets
from tpu_export.exporter.capture import Captured
from tpu_export.exporter.progress import Stages
from tpu_export.exporter.stages import DEFAULT_TOPOLOGIES
from tpu_export.parity.litert_options import LiteRtOptions
from tpu_export.parity.report import ParityRow
from tpu_export.parity.samples import Second

Signatures: TypeAlias = Mapping[str, Captured]


@dataclass(frozen=True)
class Job:
    """A job of `export`, its signatures captured already."""

    signatures: Signatures
    output: Path
    target: str = "cloud-tpu"
    topologies: Sequence[str] = DEFAULT_TOPOLOGIES
    buckets: Buckets = field(default_factory=dict)
    parity: bool = True
    tolerance: float | None = None
    seed: int = 1
    second_inputs: Second | None = None
    cpu_engine: str = "xla"
    litert: LiteRtOptions = field(default_factory=LiteRtOptions)
    stages: Stages = field(default_factory=Stages)
    notes: tuple[str, ...] = ()


class Pending(Protocol):
    """A written result without its final name yet."""

    notes: list[str]
    estimates: list[dict[str, object]]
    quantization: dict[str, Any] | None
    transposes: dict[str, list[dict[str, object]]]

    def prove(self) -> list[ParityRow]:
        """Compare it with torch eager."""

    def commit(self) -> Path:
        """Give it its final name and return that."""
