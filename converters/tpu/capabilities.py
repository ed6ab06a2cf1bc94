"""What this host can compile for, asked of libtpu itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from tpu_export.converters.tpu.chips import CHIPS
from tpu_export.converters.tpu.compile import check_host
from tpu_export.converters.tpu.environment import worker_environment
from tpu_export.runtime.errors import TpuExportError

_SMALLEST: Final = {
    name: f"{name}:{'x'.join(['1'] * chip.rank)}" for name, chip in CHIPS.items()
}
_PROBE: Final = """
import importlib.metadata, json, sys
from jax.experimental import topologies
answers = {}
for name in sys.argv[1:]:
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=name)
        answers[name] = found.devices[0].client.platform_version
    except Exception as error:
        answers[name] = None
print(json.dumps({"version": importlib.metadata.version("libtpu"), "answers": answers}))
"""


@dataclass(frozen=True)
class CompileCapabilities:
    """Whether libtpu works here, and for which generations it compiles.

    Attributes:
        libtpu: its version; None when it cannot be used.
        build: libtpu's own build line.
        generations: chips that it answers for.
        problem: why it cannot be used; "" when it can.
    """

    libtpu: str | None
    build: str
    generations: tuple[str, ...]
    problem: str


def compile_capabilities(timeout: float = 60.0) -> CompileCapabilities:
    """Ask libtpu, in a process of its own, what it compiles for."""
    try:
        check_host()
    except TpuExportError as error:
        return _unusable(f"{error.message}; {error.hint}")
    command = [sys.executable, "-c", _PROBE, *_SMALLEST.values()]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=worker_environment(),
            timeout=timeout,
            check=True,
        )
    except subprocess.SubprocessError as error:
        return _unusable(f"libtpu does not start: {error}")
    found = json.loads(answer.stdout)
    builds = {
        name: found["answers"][smallest]
        for name, smallest in _SMALLEST.items()
        if found["answers"][smallest]
    }
    build = next(iter(builds.values()), "").splitlines()[-1:]
    return CompileCapabilities(found["version"], "".join(build), tuple(builds), "")


def _unusable(problem: str) -> CompileCapabilities:
    return CompileCapabilities(None, "", (), problem)
