"""What a manifest says of executables and CPU engines: rules 3.8 and 3.13 of docs/tpuexe.md."""

from __future__ import annotations

from collections.abc import Mapping

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.manifest import CpuEngine, Executable, Manifest, Program
from tpu_export.runtime.tensor_rules import MAX_SIZE, TENSOR
from tpu_export.runtime.tree_rules import distinct, require

_ENGINES = ("litert", "xla")


def check_code(manifest: Manifest) -> None:
    """Check what an artifact says of its executables and CPU engines.

    Raises:
        ArtifactCorruptedError: naming the rule that is broken, and where.
    """
    for executable in manifest.executables:
        _check_executable(executable, manifest)
    for engine in manifest.cpu_engines:
        _check_engine(engine, manifest)
    sizes = [(e.signature, *sorted(e.dims.items())) for e in manifest.cpu_engines]
    require(distinct(sizes), "3.13", "two CPU engines for the same sizes")


def _check_executable(executable: Executable, manifest: Manifest) -> None:
    where = f"executable {executable.main!r}"
    program = _program(executable.signature, manifest, "3.8", "an executable")
    require(executable.platform in ("cpu", "tpu"), "3.8", f"{where}: platform")
    _check_dims(executable.dims, program, "3.8", where)
    arguments = program.main.arguments
    same = len(executable.layouts) == len(arguments)
    require(same, "3.8", f"{where}: as many layouts as arguments")
    for order, slot in zip(executable.layouts, arguments, strict=True):
        good = order is None or sorted(order) == list(range(len(slot.shape)))
        require(good, "3.8", f"{where}: layout of {slot.name!r}")
    leading = any(s.kind in ("weight", "prepared") for s in arguments)
    wanted = program.prepare is not None if executable.platform == "cpu" else leading
    good = (executable.prepare is not None) == wanted
    require(good, "3.8", f"{where}: prepare is missing, or too many")


def _check_engine(engine: CpuEngine, manifest: Manifest) -> None:
    where = f"CPU engine of {engine.signature!r}"
    program = _program(engine.signature, manifest, "3.13", "a CPU engine")
    _check_dims(engine.dims, program, "3.13", where)
    good = engine.engine in _ENGINES and (engine.main is None) == (
        engine.engine == "xla"
    )
    require(good, "3.13", f"{where}: it is {engine.engine!r}")
    times = engine.microseconds
    good = set(times) <= set(_ENGINES) and all(
        0 <= t <= MAX_SIZE for t in times.values()
    )
    require(good, "3.13", f"{where}: bad time")
    good = all(TENSOR.match(t) for t in (*engine.producers, *engine.producers.values()))
    require(good, "3.13", f"{where}: bad producer")


def _program(name: str, manifest: Manifest, rule: str, what: str) -> Program:
    program = manifest.programs.get(name)
    if program is None:
        raise ArtifactCorruptedError(rule, f"{what} of an unknown signature {name!r}")
    return program


def _check_dims(
    dims: Mapping[str, int], program: Program, rule: str, where: str
) -> None:
    """Every dimension of the signature has a size in its range, up from 0."""
    require(not program.signature.counted, rule, f"{where}: of counted sizes")
    ranges = {dim.name: dim for dim in program.signature.dims}
    require(set(ranges) == set(dims), rule, f"{where}: dimensions")
    for name, size in dims.items():
        high = MAX_SIZE if ranges[name].maximum is None else ranges[name].maximum
        require(0 <= size <= (high or 0), rule, f"{where}: size of {name!r}")
