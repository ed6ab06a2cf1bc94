"""manifest.json as typed values: what an artifact holds and how to call it.

The rules for each field are in docs/tpuexe.md; reading and checking is runtime/artifact.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpu_export.runtime.signature import FunctionSpec, Signature

# Version log, newest last. A reader accepts every version up to its own.
# 1  2026-12: first version.
FORMAT_VERSION = 1
# Features: what a reader must know beyond the version, where a file uses it.
CONSTRAINTS, RANGES, COUNTED = "constraints", "ranges", "counted"
CPU_ENGINES = "cpu_engines"
FEATURES = (CONSTRAINTS, RANGES, COUNTED, CPU_ENGINES)


def features_of(
    signatures: Iterable[Signature], cpu_engines: Sequence[CpuEngine] = ()
) -> tuple[str, ...]:
    """Return the features that an artifact uses, in the order of FEATURES."""
    found = [*signatures]
    used = {
        CONSTRAINTS: any(s.constraints for s in found),
        RANGES: any(s.ranges for s in found),
        COUNTED: any(s.counted for s in found),
        CPU_ENGINES: bool(cpu_engines),
    }
    return tuple(name for name in FEATURES if used[name])


@dataclass(frozen=True)
class Compiler:
    """Who built an executable; it is used only where all of this matches.

    Attributes:
        jaxlib: version of jaxlib.
        platform_version: PJRT's own build string (libtpu's build on TPU).
        host_features: CPU features the code needs, sorted; empty for TPU.
        options: the effective compiler options.
    """

    jaxlib: str
    platform_version: str
    host_features: tuple[str, ...]
    options: dict[str, str]


@dataclass(frozen=True)
class Executable:
    """One ahead-of-time compiled signature for one topology.

    Attributes:
        signature: the signature's name.
        platform: "tpu" or "cpu".
        topology: libtpu's name ("v5e:1x1"), or "host" for cpu.
        dims: sizes of the dynamic dims it was compiled for; {} when static.
        main: entry with the raw PJRT bytes of main.
        prepare: entry with the raw PJRT bytes of prepare, or None when the program has none.
            On TPU it takes every weight and gives every leading argument of main in the layout
            that the compiler chose; on CPU it is the program's own prepare.
        layouts: major-to-minor order of each main argument, in order; None = row-major.
        compiler: who built it.
    """

    signature: str
    platform: str
    topology: str
    dims: dict[str, int]
    main: str
    prepare: str | None
    layouts: tuple[tuple[int, ...] | None, ...]
    compiler: Compiler


@dataclass(frozen=True)
class CpuEngine:
    """Which engine runs a signature on a CPU, for one set of sizes.

    Attributes:
        signature: the signature's name, here and in the .tflite.
        dims: sizes of the dynamic dims; {} when static.
        engine: "litert" or "xla".
        main: entry with the .tflite; None with "xla".
        microseconds: of a call at export, by engine, as measured there; {} when not.
        producers: versions of what made the .tflite and measured.
    """

    signature: str
    dims: dict[str, int]
    engine: str
    main: str | None
    microseconds: dict[str, int]
    producers: dict[str, str]


def litert_signature(signature: str, dims: Mapping[str, int]) -> str:
    """Return the name that a signature has in a .tflite, for one set of sizes."""
    return signature + "".join(f".{k}={v}" for k, v in sorted(dims.items()))


def buckets(executables: Iterable[Executable]) -> list[dict[str, int]]:
    """Return the sizes that executables are for, each once, in order."""
    distinct = dict.fromkeys(tuple(e.dims.items()) for e in executables)
    return [dict(sizes) for sizes in distinct]


@dataclass(frozen=True)
class Entry:
    """A file of the archive: its size in bytes and SHA-256 in hex."""

    size: int
    sha256: str


@dataclass(frozen=True)
class WeightRef:
    """Where a weight lies: an entry, and the tensor's key in it. Tied weights share one."""

    entry: str
    key: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class CountFunction:
    """A function that gives counted dimensions, run before main, and its entries."""

    spec: FunctionSpec
    modules: dict[str, str]


@dataclass(frozen=True)
class Program:
    """The portable form of one signature: entries per variant ("" always, "cpu" maybe).

    Attributes:
        counts: in the order they run; each may need the sizes that earlier ones gave.
    """

    signature: Signature
    main: FunctionSpec
    main_modules: dict[str, str]
    prepare: FunctionSpec | None
    prepare_modules: dict[str, str]
    counts: tuple[CountFunction, ...] = field(default=(), metadata={"optional": True})


@dataclass(frozen=True)
class Manifest:
    """Everything that a loader must know before it touches another entry.

    Attributes:
        producers: versions of what made the artifact: tpu-export, torch, jax, …
        features: names of format features a reader must know to load this file.
        weights: by FQN; initial state is here too, under the slot's name.
        cpu_engines: what runs on a CPU where it is not, or not for sure, XLA.
    """

    version: int
    features: tuple[str, ...]
    producers: dict[str, str]
    programs: dict[str, Program]
    weights: dict[str, WeightRef]
    executables: tuple[Executable, ...]
    entries: dict[str, Entry]
    cpu_engines: tuple[CpuEngine, ...] = field(default=(), metadata={"optional": True})
