"""Compile a lowered program ahead of time, for TPU slices and for this host's CPU.

Every target is one worker process with a clean environment. Finished targets are cached
by content, so an interrupted build goes on where it stopped.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform as host
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias

from tpu_export.converters.tpu.cache import (
    cache_directory,
    cache_key,
    read_entry,
    write_entry,
)
from tpu_export.converters.tpu.cost import CostReport
from tpu_export.converters.tpu.jobs import Job, Layouts, Platform, Result
from tpu_export.converters.tpu.topologies import Topology
from tpu_export.converters.tpu.workers import Workers
from tpu_export.runtime.devices import XLA_CPU_OPTIONS, host_features
from tpu_export.runtime.errors import MissingExtraError, TpuExportError
from tpu_export.runtime.manifest import Compiler
from tpu_export.runtime.signature import LoweredFunction, Signature

Target: TypeAlias = Topology | Literal["cpu"]

TPU_OPTIONS: Final[dict[str, str]] = {}
_WORKER_BYTES: Final = 1.5 * 2**30


class UnsupportedHostError(TpuExportError):
    """libtpu exists for x86-64 Linux only."""

    code = "TPX-0302"


class UnboundDimError(TpuExportError):
    """A dynamic dimension has no size to compile for."""

    code = "TPX-0306"


class Lowered(Protocol):
    """What is compiled; a LoweredProgram without the need to import torch."""

    @property
    def signature(self) -> Signature: ...  # noqa: D102
    @property
    def main(self) -> LoweredFunction: ...  # noqa: D102
    @property
    def prepare(self) -> LoweredFunction | None: ...  # noqa: D102


@dataclass(frozen=True)
class CompiledTarget:
    """One signature's executables for one target.

    Attributes:
        platform: "tpu" or "cpu".
        topology: libtpu's name of the slice, or "host".
        dims: sizes of the dynamic dimensions they were compiled for.
        main: raw PJRT bytes.
        prepare: raw PJRT bytes. On TPU it takes every raw weight once (prepare's first,
            then main's) and gives every leading argument of main in the layout main
            wants; it may reuse the weights' buffers. On CPU it is the program's own
            prepare, or None.
        layouts: major-to-minor order of each main argument; None = row-major.
        compiler: who built them, with the effective options.
        report: the compiler's estimates; None for cpu.
        seconds: how long it took; for a cached target, how long the read took.
        cached: whether they came from the cache.
    """

    platform: Platform
    topology: str
    dims: Mapping[str, int]
    main: bytes = field(repr=False)
    prepare: bytes | None = field(repr=False)
    layouts: Layouts = field(repr=False)
    compiler: Compiler
    report: CostReport | None = field(repr=False)
    seconds: float
    cached: bool


@dataclass(frozen=True)
class CompileEvent:
    """A target started, or ended after `seconds`."""

    target: str
    phase: Literal["start", "end"]
    seconds: float = 0.0
    cached: bool = False


Progress: TypeAlias = Callable[[CompileEvent], None]


def compile_program(
    program: Lowered,
    targets: Sequence[Target],
    *,
    dims: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> list[CompiledTarget]:
    """Compile main and prepare for every target, in parallel workers.

    Args:
        program: a lowered signature.
        targets: slices, and "cpu" for this host.
        dims: a size for every dynamic dimension of the signature; or several such, and
            then there are executables for each, in this order.
        options: XLA compiler options on top of ours, for every target.
        progress: called from worker threads as targets start and end.

    Raises:
        UnboundDimError: a dynamic dimension has no size.
        MissingExtraError: libtpu is needed and not installed.
        UnsupportedHostError: libtpu does not exist for this host.
        OutOfMemoryError: the program needs more HBM than the chip has.
        CompileRefusedError: the compiler refused the program.
        CompileCrashedError: a worker died.
    """
    given = [dims or {}] if not isinstance(dims, Sequence) else dims
    sizes = [_bound(program.signature, each) for each in given]
    if any(isinstance(target, Topology) for target in targets):
        check_host()
    jobs = [
        _job(program, target, each, options or {})
        for each in sizes
        for target in targets
    ]
    tell = progress or (lambda _: None)
    with Workers() as workers, ThreadPoolExecutor(_parallel()) as pool:
        try:
            work = [pool.submit(_compiled, workers, program, job, tell) for job in jobs]
            return [future.result() for future in work]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.stop()
            raise


def check_host() -> None:
    """Raise when this host cannot compile for TPU.

    Raises:
        UnsupportedHostError: it is not x86-64 Linux.
        MissingExtraError: libtpu is not installed.
    """
    system, machine = host.system(), host.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise UnsupportedHostError(
            f"cannot compile for TPU on {system} {machine}: libtpu needs x86-64 Linux",
            hint="export on an x86-64 Linux host or container, or without topologies",
        )
    if importlib.util.find_spec("libtpu") is None:
        package, extra = "libtpu", "tpu"
        raise MissingExtraError(package, extra)


def _compiled(
    workers: Workers, program: Lowered, job: Job, tell: Progress
) -> CompiledTarget:
    start = time.perf_counter()
    tell(CompileEvent(job.name, "start"))
    modules = _modules(program, job.platform)
    key, directory = cache_key(_facts(job), modules), cache_directory()
    parts = read_entry(directory, key)
    cached = parts is not None
    if parts is None:
        parts = workers.run(job, modules)
        write_entry(directory, key, parts)
    result = Result.from_json(json.loads(parts["result"]))
    seconds = time.perf_counter() - start
    tell(CompileEvent(job.name, "end", seconds, cached))
    return CompiledTarget(
        platform=job.platform,
        topology=job.topology,
        dims=job.dims,
        main=parts["main"],
        prepare=parts.get("prepare"),
        layouts=result.layouts,
        compiler=result.compiler,
        report=result.report,
        seconds=seconds,
        cached=cached,
    )


def _job(
    program: Lowered,
    target: Target,
    dims: Mapping[str, int],
    options: Mapping[str, str],
) -> Job:
    prepare = program.prepare.spec if program.prepare else None
    if isinstance(target, Topology):
        return Job(
            platform="tpu",
            topology=target.libtpu,
            description=target.description,
            generation=target.generation,
            hbm_bytes=target.chip.device_hbm_bytes,
            dims=dims,
            options={**TPU_OPTIONS, **options},
            main=program.main.spec,
            prepare=prepare,
        )
    return Job(
        platform="cpu",
        topology="host",
        description={},
        generation="",
        hbm_bytes=0,
        dims=dims,
        options={**XLA_CPU_OPTIONS, **options},
        main=program.main.spec,
        prepare=prepare,
    )


def _modules(program: Lowered, platform: str) -> dict[str, bytes]:
    modules = {"main": program.main.module(platform)}
    if program.prepare is not None:
        modules["prepare"] = program.prepare.module(platform)
    return modules


def _facts(job: Job) -> dict[str, object]:
    """Everything beside the modules that decides what the compiler makes."""
    built_for = host_features() if job.platform == "cpu" else _libtpu_build()
    return {
        "schema": 3,  # of what the worker makes, reports included
        "jaxlib": importlib.metadata.version("jaxlib"),
        "built_for": built_for,
        **job.to_json(),
    }


def _libtpu_build() -> str:
    """Identify libtpu without loading it: its version and the hash in its RECORD."""
    package = importlib.metadata.distribution("libtpu")
    hashes = [
        file.hash.value
        for file in package.files or ()
        if file.name == "libtpu.so" and file.hash
    ]
    return " ".join([package.version, *hashes])


def _bound(signature: Signature, dims: Mapping[str, int]) -> dict[str, int]:
    names = [dim.name for dim in signature.dims]
    if missing := [name for name in names if name not in dims]:
        raise UnboundDimError(
            f"no size for the dynamic dimensions {', '.join(missing)} of "
            f"{signature.name!r}",
            hint="executables have fixed shapes: give a size, as dims={'batch': 8}",
        )
    return {name: dims[name] for name in names}


def _parallel() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return max(1, min(cores, int(_available_bytes() // _WORKER_BYTES)))


def _available_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            rows = dict(line.split(":", 1) for line in file)
        return int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return int(_WORKER_BYTES)
