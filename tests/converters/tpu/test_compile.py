from __future__ import annotations

import importlib.util
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jaxlib import xla_client

from tpu_export.converters.tpu import compile as compile_module
from tpu_export.converters.tpu import workers
from tpu_export.converters.tpu.compile import (
    CompiledTarget,
    CompileEvent,
    Lowered,
    UnboundDimError,
    UnsupportedHostError,
    compile_program,
)
from tpu_export.converters.tpu.environment import worker_environment
from tpu_export.converters.tpu.memory import OutOfMemoryError
from tpu_export.converters.tpu.topologies import parse_topology
from tpu_export.converters.tpu.workers import CompileCrashedError, CompileRefusedError
from tpu_export.runtime.errors import MissingExtraError
from tpu_export.runtime.signature import Slot

V5E, V6E = parse_topology("v5e-1"), parse_topology("v6e-1")
SIZES = {"batch": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def events() -> list[CompileEvent]:
    return []


@pytest.fixture(scope="module")
def compiled(
    linear: Lowered, folder: Path, events: list[CompileEvent]
) -> dict[str, CompiledTarget]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPU_EXPORT_CACHE", str(folder))
        targets = compile_program(
            linear, [V5E, V6E, "cpu"], dims=SIZES, progress=events.append
        )
    return {target.topology: target for target in targets}


@pytest.fixture
def warm(
    compiled: dict[str, CompiledTarget], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The cache that holds `compiled`."""
    monkeypatch.setenv("TPU_EXPORT_CACHE", str(folder))
    return folder


def run(data: bytes, *arguments: Any) -> list[np.ndarray[Any, Any]]:
    device = jax.devices("cpu")[0]
    with jax.enable_x64(True):
        executable = device.client.deserialize_executable(
            data, executable_devices=xla_client.DeviceList((device,))
        )
        arrays = [jax.device_put(x, device) for x in arguments]
        outputs = executable.execute_sharded(arrays)
        return [
            np.asarray(x[0]) for x in outputs.disassemble_into_single_device_arrays()
        ]


def test_every_target_is_compiled(
    compiled: dict[str, CompiledTarget], events: list[CompileEvent]
) -> None:
    assert list(compiled) == ["v5e:1x1", "v6e:1x1", "host"]
    assert all(t.main and t.prepare and not t.cached for t in compiled.values())
    assert all(t.dims == SIZES for t in compiled.values())
    assert {(e.target, e.phase) for e in events} == {
        (f"{name} batch=8", phase) for name in compiled for phase in ("start", "end")
    }


def test_several_sizes_are_several_executables(linear: Lowered, warm: Path) -> None:
    sizes = [{"batch": 4}, {"batch": 8}]
    targets = compile_program(linear, ["cpu", V5E], dims=sizes)
    assert [(t.topology, t.dims["batch"]) for t in targets] == [
        ("host", 4),
        ("v5e:1x1", 4),
        ("host", 8),
        ("v5e:1x1", 8),
    ]
    assert [t.cached for t in targets] == [False, False, True, True]


def test_the_compiler_is_recorded(compiled: dict[str, CompiledTarget]) -> None:
    assert "Built on" in compiled["v5e:1x1"].compiler.platform_version
    assert compiled["v5e:1x1"].compiler.host_features == ()
    assert "ynn" in " ".join(compiled["host"].compiler.options)
    assert compiled["host"].compiler.host_features


def test_the_report_names_memory_cycles_and_places(
    compiled: dict[str, CompiledTarget],
) -> None:
    report = compiled["v5e:1x1"].report
    assert report is not None
    assert report.memory.arguments >= (512 * 256 + 512 + 8 * 256) * 4
    assert report.memory.available == 16 * 2**30
    assert report.flops >= 2 * 8 * 512 * 256
    assert report.cycles > 0
    assert report.by_module()["net.fc"] > report.cycles / 2
    assert report.places[0].source == "model.py:3"
    assert compiled["host"].report is None


def test_the_cpu_executables_compute(compiled: dict[str, CompiledTarget]) -> None:
    rng = np.random.default_rng(0)
    w, b, x = (
        rng.normal(size=shape).astype("float32")
        for shape in ((512, 256), 512, (8, 256))
    )
    host = compiled["host"]
    assert host.prepare is not None
    (doubled,) = run(host.prepare, b)
    y, count = run(host.main, w, doubled, np.int64(2**40), x)
    np.testing.assert_allclose(y, jax.nn.gelu(x @ w.T + 2 * b), rtol=1e-4, atol=1e-4)
    assert count == 2**40 + 1


def test_a_second_build_is_a_read(
    linear: Lowered, compiled: dict[str, CompiledTarget], warm: Path
) -> None:
    (again,) = compile_program(linear, [V6E], dims=SIZES)
    first = compiled["v6e:1x1"]
    assert again.cached
    assert (again.main, again.prepare) == (first.main, first.prepare)
    assert (again.report, again.layouts) == (first.report, first.layouts)


def test_a_damaged_entry_is_built_anew_and_equal(
    linear: Lowered, compiled: dict[str, CompiledTarget], warm: Path
) -> None:
    for path in warm.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    (again,) = compile_program(linear, ["cpu"], dims=SIZES)
    assert not again.cached
    assert again.main == compiled["host"].main


@pytest.mark.parametrize("target", [V5E, "cpu"], ids=["v5e", "cpu"])
def test_nothing_ambient_leaks_in(
    linear: Lowered,
    compiled: dict[str, CompiledTarget],
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: Any,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--no_such_flag=1")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--no_such_flag=1")
    monkeypatch.setenv("JAX_DEFAULT_MATMUL_PRECISION", "highest")
    (again,) = compile_program(linear, [target], dims=SIZES)
    first = compiled[again.topology]
    assert not again.cached
    assert (again.main, again.prepare) == (first.main, first.prepare)


def test_executables_hold_no_path_of_this_host(
    compiled: dict[str, CompiledTarget],
) -> None:
    words = [b"site-packages", b"/converters/", str(Path.cwd()).encode()]
    for target in compiled.values():
        assert not [word for word in words if word in target.main]


def test_sizes_and_options_make_another_executable(
    linear: Lowered, compiled: dict[str, CompiledTarget], warm: Path
) -> None:
    (other,) = compile_program(linear, ["cpu"], dims={"batch": 2})
    assert not other.cached
    assert other.main != compiled["host"].main


def test_the_compiler_chooses_layouts_of_weights(program: Any, cache: Path) -> None:
    def body(w: Any, x: Any) -> Any:
        return (x @ w,)

    few = program(
        body,
        [
            Slot("weight", "w", (1024, 9), "float32"),
            Slot("input", "x", (64, 1024), "float32"),
        ],
        [Slot("output", "y", (64, 9), "float32")],
    )
    (target,) = compile_program(few, [V5E])
    assert target.layouts == ((1, 0), None)
    assert target.prepare


def test_outputs_need_no_relayout(program: Any, cache: Path) -> None:
    """In libtpu's default layout of [1, 1500, 384] a copy would cost as much as the rest."""

    def body(x: Any) -> Any:
        y = (x - x.mean(-1, keepdims=True)).reshape(1, 1500, 384)
        return (y, y)

    slot = Slot("output", "y", (1, 1500, 384), "float32")
    state = Slot("state", "s", (1, 1500, 384), "float32")
    given = [Slot("input", "x", (1500, 384), "float32")]
    cycles = []
    for results in ([slot, slot], [slot, state]):
        (target,) = compile_program(program(body, given, results), [V5E])
        assert target.report is not None
        cycles.append(target.report.cycles)
    free, fixed = cycles
    assert fixed > 2 * free


def test_out_of_memory_states_sizes_and_places(program: Any, cache: Path) -> None:
    def body(x: Any) -> Any:
        with jax.named_scope("net.outer/aten.mul.Tensor/model.py:7"):
            y = x[:, None] * x[None, :]
        with jax.named_scope("net.order/aten.sort.default/model.py:9"):
            return (jax.numpy.sort(y, axis=0),)

    large = program(
        body,
        [Slot("input", "x", (70000,), "float32")],
        [Slot("output", "y", (70000, 70000), "float32")],
    )
    with pytest.raises(OutOfMemoryError) as caught:
        compile_program(large, [V5E])
    error = caught.value
    assert error.needed > 36 * 2**30
    assert 15 * 2**30 < error.available <= 16 * 2**30
    assert {value.source for value in error.largest[:2]} == {"model.py:7", "model.py:9"}
    assert error.largest[0].bytes == 70000 * 70000 * 4


def test_a_refusal_is_typed(linear: Lowered, cache: Path) -> None:
    with pytest.raises(CompileRefusedError, match="no_such_option"):
        compile_program(linear, ["cpu"], dims=SIZES, options={"no_such_option": "1"})


def test_boolean_options_are_written_as_words(linear: Lowered, cache: Path) -> None:
    options = {"xla_dump_hlo_as_text": "false"}
    (target,) = compile_program(linear, ["cpu"], dims=SIZES, options=options)
    assert target.compiler.options["xla_dump_hlo_as_text"] == "false"


def test_a_crash_shows_the_last_words(
    linear: Lowered, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned() -> dict[str, str]:
        return {**worker_environment(), "XLA_FLAGS": "--no_such_flag=1"}

    monkeypatch.setattr(workers, "worker_environment", poisoned)
    with pytest.raises(CompileCrashedError) as caught:
        compile_program(linear, ["cpu"], dims=SIZES)
    assert "no_such_flag" in caught.value.log
    assert not list(cache.rglob("*"))


def test_an_interrupt_leaves_nothing(linear: Lowered, cache: Path) -> None:
    def interrupt(event: CompileEvent) -> None:
        if event.phase == "start":
            threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        compile_program(linear, [V5E], dims=SIZES, progress=interrupt)
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()
    assert children.split() == []
    assert not list(cache.rglob("*"))


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tpu_export.converters.tpu.worker", str(tmp_path)]
    os.mkfifo(tmp_path / "job.json")  # never answers: the worker waits for its job
    process = subprocess.Popen(command, stdin=subprocess.PIPE, env=worker_environment())
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=60) == 130


@pytest.mark.parametrize("dims", [None, {}, {"seq": 3}])
def test_dynamic_dims_need_sizes(linear: Lowered, dims: dict[str, int] | None) -> None:
    with pytest.raises(UnboundDimError, match="batch"):
        compile_program(linear, ["cpu"], dims=dims)


def test_other_hosts_are_refused(
    linear: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(UnsupportedHostError, match="arm64"):
        compile_program(linear, [V5E], dims=SIZES)


def test_a_missing_libtpu_names_its_extra(
    linear: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        compile_program(linear, [V5E], dims=SIZES)
    assert "tpu-export[tpu]" in caught.value.hint


def test_workers_are_bounded_by_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_module, "_available_bytes", lambda: 2**20)
    assert compile_module._parallel() == 1


def test_deep_graphs_do_not_overflow(program: Any, cache: Path) -> None:
    def body(w: Any, x: Any) -> Any:
        for _ in range(600):
            x = jax.numpy.tanh(x @ w) + x
        return (x,)

    x = Slot("input", "x", (8, 8), "float32")
    w = Slot("weight", "w", (8, 8), "float32")
    deep = program(body, [w, x], [Slot("output", "y", (8, 8), "float32")])
    (target,) = compile_program(deep, ["cpu"])
    assert target.main
