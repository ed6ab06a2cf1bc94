"""A serving process opens the artifact and Python's own files, and compiles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Make = Callable[..., Path]

# Opens of what Python and its packages consist of are recorded apart, by prefix.
SCRIPT = """
import json, os, sys
path, device_files = sys.argv[1], ("/proc/", "/sys/", "/dev/")
opened, forbidden = set(), []

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
        opened.add(os.fsdecode(arguments[0]))
    elif event.startswith((
        "pickle.find_class", "socket.connect", "socket.getaddrinfo", "urllib.Request",
        "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn",
    )):
        forbidden.append(f"{event} {arguments}")

sys.addaudithook(hook)
import jax
import jax.monitoring
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, seconds, **_: compiled.append(name)
)
import numpy as np
from tpu_export.runtime.program import load
program = load(path, device="cpu", executables=sys.argv[2], verify="all")
x = np.ones((2, 3), np.float32)
result = program(x)
roots = {os.path.realpath(p) for p in (*sys.path, sys.prefix, sys.base_prefix) if p}
import tpu_export
roots |= {os.path.realpath(os.path.dirname(os.path.dirname(tpu_export.__file__)))}
roots |= {os.path.realpath(os.path.dirname(os.path.realpath(load.__code__.co_filename)))}
ours = sorted(
    name for name in opened
    if not name.startswith(device_files)
    and not any(os.path.realpath(name).startswith(root) for root in roots)
)
print(json.dumps({
    "opened": ours, "forbidden": forbidden, "compilations": program.compilations,
    "events": [e for e in compiled if "backend_compile" in e or "jaxpr_trace" in e],
    "torch": "torch" in sys.modules, "origin": program.origin["forward"],
    "libtpu": "libtpu" in open("/proc/self/maps").read(),
    "result": result.tolist(),
}))
"""


def served(path: Path, policy: str, **environment: str) -> dict[str, Any]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "TPU_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", SCRIPT, str(path), policy],
        capture_output=True,
        text=True,
        env={**clean, **environment},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return {**answer, "stderr": done.stderr}


@pytest.fixture(scope="module")
def cold(artifact: Make) -> dict[str, Any]:
    return served(artifact("linear", compiled=[{}]), "auto")


def test_no_file_but_the_artifact_is_opened(cold: dict[str, Any]) -> None:
    assert [Path(name).name for name in cold["opened"]] == ["linear.tpuexe"]


def test_no_pickle_no_process_no_network(cold: dict[str, Any]) -> None:
    assert cold["forbidden"] == []


def test_torch_and_libtpu_are_not_loaded(cold: dict[str, Any]) -> None:
    assert not cold["torch"]
    assert not cold["libtpu"]


def test_nothing_is_compiled_when_the_executable_fits(cold: dict[str, Any]) -> None:
    assert cold["origin"] == "executable cpu/host"
    assert cold["compilations"] == 0
    assert cold["events"] == []
    assert cold["result"] == [[25, 32, 39, 46]] * 2


def test_nothing_is_printed(cold: dict[str, Any]) -> None:
    assert cold["stderr"] == ""


def test_compiling_is_as_safe_and_the_events_do_count(artifact: Make) -> None:
    answer = served(artifact("linear"), "never")
    assert [Path(name).name for name in answer["opened"]] == ["linear.tpuexe"]
    assert answer["forbidden"] == []
    assert answer["compilations"] == 2  # main and prepare
    assert sum("backend_compile" in event for event in answer["events"]) == 2
    assert not answer["torch"]
