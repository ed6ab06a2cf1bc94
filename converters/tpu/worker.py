"""Compile one job directory: ``python -m tpu_export.converters.tpu.worker DIRECTORY``.

A worker is a process of its own because libtpu aborts where others raise, keeps
memory, and must see a clean environment. It ends when its standard input closes, so
that none outlives the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import jax
from jax.experimental import topologies
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

from tpu_export.converters.tpu.chips import CHIPS
from tpu_export.converters.tpu.cost import Memory, cost_report, roofline
from tpu_export.converters.tpu.hlo import hlo_costs
from tpu_export.converters.tpu.jobs import Job, Layouts, Result, read_job
from tpu_export.converters.tpu.memory import OutOfMemoryError, hbm_sizes, largest_values
from tpu_export.runtime.devices import host_features
from tpu_export.runtime.manifest import Compiler
from tpu_export.runtime.signature import Slot, layout_prepare_spec, leading_slots
from tpu_export.runtime.stablehlo import portable_callable, static_shapes

# XLA walks deep graphs recursively: the default 8 MB overflow on a few thousand layers.
_STACK_BYTES: Final = 512 * 2**20
_BOOLS: Final[dict[str, object]] = {"true": True, "false": False}


def main(argv: Sequence[str]) -> int:
    """Compile the job in a directory and write result.json, or error.json."""
    directory = Path(argv[1])
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    job, modules = read_job(directory)
    try:
        result, executables = _on_deep_stack(lambda: compile_job(job, modules))
    except OutOfMemoryError as error:
        _write(directory / "error.json", {"out_of_memory": error.to_json()})
        return 1
    except jax.errors.JaxRuntimeError as error:
        _write(directory / "error.json", {"refused": str(error)})
        return 1
    for name, data in executables.items():
        (directory / f"{name}.bin").write_bytes(data)
    _write(directory / "result.json", result.to_json())
    return 0


def compile_job(job: Job, modules: dict[str, bytes]) -> tuple[Result, dict[str, bytes]]:
    """Compile main and prepare for the job's target."""
    warnings.filterwarnings("ignore", "Some donated buffers were not usable")
    # What a traceback would add to an executable is this host's paths.
    configure: Any = jax.config.update
    configure("jax_traceback_in_locations_limit", 0)
    with jax.enable_x64(True):
        return (_for_tpu if job.platform == "tpu" else _for_cpu)(job, modules)


def _for_tpu(job: Job, modules: dict[str, bytes]) -> tuple[Result, dict[str, bytes]]:
    describe: Any = topologies.get_topology_desc
    device: Any = describe(platform="tpu", **job.description).devices[0]
    sharding = SingleDeviceSharding(device)
    auto = Format(Layout.AUTO, sharding)
    leading = leading_slots(job.main)
    formats = [auto if slot in leading else sharding for slot in job.main.arguments]
    function = portable_callable(modules["main"], job.main, "tpu")
    # An output leaves for the host, which reads any layout; state comes back as it went.
    free = tuple(auto if s.kind == "output" else sharding for s in job.main.results)
    lowered = _lower(job, function, job.main.arguments, formats, results=free)
    main_program = _compile(job, lowered)
    executables = {"main": _serialize(main_program)}
    chosen = main_program.input_formats[0][: len(leading)]
    if leading:
        prepare = _prepare_for_layouts(job, modules, chosen, sharding)
        executables["prepare"] = _serialize(prepare)
    orders = [_order(form) for form in chosen]
    layouts = (*orders, *(None for _ in job.main.arguments[len(leading) :]))
    compiler = _compiler(device.client.platform_version, (), job)
    return Result(layouts, compiler, _report(job, main_program)), executables


def _for_cpu(job: Job, modules: dict[str, bytes]) -> tuple[Result, dict[str, bytes]]:
    device = jax.devices("cpu")[0]
    sharding = SingleDeviceSharding(device)
    specs = {"main": job.main, **({"prepare": job.prepare} if job.prepare else {})}
    executables = {
        name: _serialize(
            _compile(
                job,
                _lower(
                    job,
                    portable_callable(modules[name], spec, "cpu"),
                    spec.arguments,
                    [sharding] * len(spec.arguments),
                ),
            )
        )
        for name, spec in specs.items()
    }
    layouts: Layouts = (None,) * len(job.main.arguments)
    compiler = _compiler(device.client.platform_version, host_features(), job)
    return Result(layouts, compiler, None), executables


def _prepare_for_layouts(
    job: Job, modules: dict[str, bytes], chosen: Sequence[Format], sharding: Any
) -> Any:
    """Compile raw weights -> main's leading arguments, in the layouts main wants."""
    spec = layout_prepare_spec(job.main, job.prepare)
    prepare = job.prepare
    portable = (
        portable_callable(modules["prepare"], prepare, "tpu") if prepare else None
    )

    def function(*weights: jax.Array) -> tuple[jax.Array, ...]:
        known = {
            slot.name: array
            for slot, array in zip(spec.arguments, weights, strict=True)
        }
        ready = {("weight", name): array for name, array in known.items()}
        if prepare and portable:
            results = portable(*(known[slot.name] for slot in prepare.arguments))
            for slot, array in zip(prepare.results, results, strict=True):
                ready["prepared", slot.name] = array
        return tuple(ready[slot.kind, slot.name] for slot in spec.results)

    lowered = _lower(
        job,
        function,
        spec.arguments,
        [sharding] * len(spec.arguments),
        results=tuple(chosen),
        donate=range(len(spec.arguments)),
    )
    return _compile(job, lowered)


def _lower(
    job: Job,
    function: Callable[..., Any],
    arguments: Sequence[Slot],
    formats: Sequence[Any],
    *,
    results: Any = None,
    donate: Sequence[int] | None = None,
) -> Any:
    state = [n for n, slot in enumerate(arguments) if slot.kind == "state"]
    return jax.jit(
        function,
        in_shardings=tuple(formats),
        **({} if results is None else {"out_shardings": results}),
        donate_argnums=tuple(state if donate is None else donate),
        keep_unused=True,
    ).lower(*static_shapes(arguments, job.dims))


def _compile(job: Job, lowered: Any) -> Any:
    given = {name: _BOOLS.get(value, value) for name, value in job.options.items()}
    try:
        return lowered.compile(compiler_options=given)
    except jax.errors.JaxRuntimeError as error:
        sizes = hbm_sizes(str(error))
        if sizes is None:
            raise
        largest = largest_values(lowered.compiler_ir("stablehlo"))
        raise OutOfMemoryError(job.name, *sizes, largest) from error


def _report(job: Job, program: Any) -> Any:
    stats = program.memory_analysis()
    memory = Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        alias=stats.alias_size_in_bytes,
        temp=stats.temp_size_in_bytes,
        code=stats.generated_code_size_in_bytes,
        available=job.hbm_bytes,
    )
    chip = CHIPS[job.generation]
    bandwidth = chip.hbm_bytes_per_second / chip.devices
    analysis = program.cost_analysis()
    try:
        text = program.as_text()
    except jax.errors.JaxRuntimeError:
        # libtpu 0.0.52 cannot read back some programs it made ("async-update instruction
        # should have 1 operands but sees 3"); they serialize and load all the same.
        costs = roofline(analysis, chip)
    else:
        costs = hlo_costs(text, bytes_per_cycle=bandwidth / chip.clock_hz)
    return cost_report(job.topology, job.generation, memory, analysis, costs)


def _order(form: Any) -> tuple[int, ...] | None:
    order = tuple(form.layout.major_to_minor)
    return None if order == tuple(range(len(order))) else order


def _serialize(program: Any) -> bytes:
    return bytes(program.runtime_executable().serialize())


def _compiler(platform_version: str, features: tuple[str, ...], job: Job) -> Compiler:
    return Compiler(version("jaxlib"), platform_version, features, dict(job.options))


def _write(path: Path, data: object) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data))
    partial.replace(path)


def _exit_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(130)


def _on_deep_stack(work: Callable[[], Any]) -> Any:
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = work()
        except BaseException as error:  # raised again where it belongs
            outcome["error"] = error

    threading.stack_size(_STACK_BYTES)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
