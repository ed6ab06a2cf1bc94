"""Write a .tpuexe: portable programs, weights streamed from the model, executables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from tpu_export import __version__
from tpu_export.converters.litert import LiteRtModel
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.converters.stablehlo.operands import DTYPES
from tpu_export.converters.stablehlo.program import LoweredProgram
from tpu_export.converters.tpu.compile import CompiledTarget
from tpu_export.runtime.artifact import ArtifactWriter
from tpu_export.runtime.codec import encode
from tpu_export.runtime.manifest import (
    FORMAT_VERSION,
    CountFunction,
    CpuEngine,
    Executable,
    Manifest,
    Program,
    WeightRef,
    features_of,
)
from tpu_export.runtime.signature import FunctionSpec, LoweredFunction

WEIGHTS = "weights/model.safetensors"
_PRODUCERS = ("torch", "jax", "jaxlib", "libtpu", "numpy")
Array = np.ndarray[Any, np.dtype[Any]]
Golden = Mapping[str, Mapping[str, Array]]


@dataclass(frozen=True)
class CpuForms:
    """The LiteRT form of an artifact's signatures, and what runs on a CPU.

    Attributes:
        model: a .tflite with all of them; its file must still be there.
    """

    ENTRY: ClassVar[str] = "litert/model.tflite"

    model: LiteRtModel
    engines: tuple[CpuEngine, ...]


@contextmanager
def save(
    path: Path,
    programs: Mapping[str, LoweredProgram],
    targets: Mapping[str, Sequence[CompiledTarget]],
    golden: Golden | None = None,
    forms: CpuForms | None = None,
) -> Iterator[ArtifactWriter]:
    """Write everything to a temporary file beside `path`, ready to load and to commit.

    Leaving the block without commit() discards the file.

    Args:
        path: the final name.
        programs: lowered signatures by name.
        targets: executables of each signature.
        golden: example inputs and eager's outputs of each signature, by name.
        forms: what runs on a CPU where XLA does not.
    """
    programs = without_collisions(programs)
    engines = forms.engines if forms else ()
    tensors = {n: t for p in programs.values() for n, t in p.weights.items()}
    written: dict[bytes, str] = {}
    with ArtifactWriter(path) as writer:
        keys = _shared_keys(tensors)
        own = {key: tensors[key] for key in dict.fromkeys(keys.values())}
        writer.add_tensors(WEIGHTS, {k: _provider(t) for k, t in own.items()})
        manifest = Manifest(
            version=FORMAT_VERSION,
            features=features_of((p.signature for p in programs.values()), engines),
            producers=_producers(),
            programs={n: _program(writer, p) for n, p in programs.items()},
            weights={n: _reference(tensors[n], key) for n, key in keys.items()},
            executables=tuple(
                _executable(writer, name, target, written)
                for name, compiled in targets.items()
                for target in compiled
            ),
            entries={},
            cpu_engines=engines,
        )
        if forms and any(engine.main for engine in engines):
            writer.add_bytes(CpuForms.ENTRY, forms.model.path.read_bytes())
        for name, arrays in (golden or {}).items():
            writer.add_tensors(
                f"parity/{name}.safetensors",
                {k: _array_provider(a) for k, a in arrays.items()},
            )
        writer.finish(manifest)
        yield writer


def _program(writer: ArtifactWriter, program: LoweredProgram) -> Program:
    name = program.signature.name
    prepare = program.prepare
    if program.integers:
        integers = json.dumps(encode(program.integers), sort_keys=True).encode()
        writer.add_bytes(f"integers/{name}.json", integers)
    return Program(
        signature=program.signature,
        main=program.main.spec,
        main_modules=_modules(writer, program.main, name),
        prepare=prepare.spec if prepare else None,
        prepare_modules=_modules(writer, prepare, f"{name}.prepare") if prepare else {},
        counts=tuple(
            CountFunction(f.spec, _modules(writer, f, f"{name}.count{i}"))
            for i, f in enumerate(program.counts)
        ),
    )


def _modules(
    writer: ArtifactWriter, function: LoweredFunction, name: str
) -> dict[str, str]:
    entries = {}
    for variant, module in function.modules.items():
        entries[variant] = f"programs/{name}{'.' + variant if variant else ''}.mlirbc"
        writer.add_bytes(entries[variant], module)
    return entries


def _executable(
    writer: ArtifactWriter,
    signature: str,
    target: CompiledTarget,
    written: dict[bytes, str],
) -> Executable:
    """Write an executable; `written` are the prepares so far, one may serve many sizes."""
    topology = target.topology.replace(":", "-")
    sizes = "".join(f".{k}={v}" for k, v in sorted(target.dims.items()))
    stem = f"executables/{target.platform}/{topology}/{signature}{sizes}"
    writer.add_bytes(f"{stem}.bin", target.main)
    prepare = None
    if target.prepare is not None:
        prepare = written.setdefault(target.prepare, f"{stem}.prepare.bin")
        if prepare == f"{stem}.prepare.bin":
            writer.add_bytes(prepare, target.prepare)
    if target.report is not None:
        report = json.dumps(target.report.to_json(), sort_keys=True).encode()
        writer.add_bytes(f"report/{topology}/{signature}{sizes}.json", report)
    return Executable(
        signature=signature,
        platform=target.platform,
        topology=target.topology,
        dims=dict(target.dims),
        main=f"{stem}.bin",
        prepare=prepare,
        layouts=target.layouts,
        compiler=target.compiler,
    )


def _shared_keys(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return the key that each weight is stored under: tied weights share the first."""
    keys: dict[tuple[object, ...], str] = {}
    return {name: keys.setdefault(_identity(t), name) for name, t in tensors.items()}


def _identity(tensor: torch.Tensor) -> tuple[object, ...]:
    place = tensor.data_ptr() or id(tensor)
    return (place, tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device)


def _reference(tensor: torch.Tensor, key: str) -> WeightRef:
    return WeightRef(WEIGHTS, key, tuple(tensor.shape), DTYPES[tensor.dtype].name)


def _provider(tensor: torch.Tensor) -> tuple[tuple[int, ...], str, Callable[[], Array]]:
    return tuple(tensor.shape), DTYPES[tensor.dtype].name, lambda: as_numpy(tensor)


def _array_provider(array: Array) -> tuple[tuple[int, ...], str, Callable[[], Array]]:
    return array.shape, array.dtype.name, lambda: array


def _producers() -> dict[str, str]:
    found = {"tpu-export": __version__}
    for package in _PRODUCERS:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def without_collisions(
    programs: Mapping[str, LoweredProgram],
) -> dict[str, LoweredProgram]:
    """Qualify weights that have one name but different tensors in two signatures."""
    seen: dict[str, tuple[object, ...]] = {}
    result = {}
    for name, program in programs.items():
        clash = {
            w
            for w, t in program.weights.items()
            if seen.setdefault(w, _identity(t)) != _identity(t)
        }
        result[name] = _qualified(program, clash, name) if clash else program
    return result


def _qualified(
    program: LoweredProgram, names: set[str], signature: str
) -> LoweredProgram:
    def new(name: str) -> str:
        return f"{signature}.{name}" if name in names else name

    def renamed(spec: FunctionSpec) -> FunctionSpec:
        arguments, results = (
            tuple(
                replace(s, name=new(s.name)) if s.kind in ("weight", "state") else s
                for s in slots
            )
            for slots in (spec.arguments, spec.results)
        )
        return FunctionSpec(arguments, results)

    state = tuple(replace(s, name=new(s.name)) for s in program.signature.state)
    prepare = program.prepare
    return replace(
        program,
        signature=replace(program.signature, state=state),
        main=replace(program.main, spec=renamed(program.main.spec)),
        prepare=replace(prepare, spec=renamed(prepare.spec)) if prepare else None,
        counts=tuple(replace(f, spec=renamed(f.spec)) for f in program.counts),
        weights={new(n): t for n, t in program.weights.items()},
    )
