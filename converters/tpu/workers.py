"""Worker processes: start one for a job, read its answer, and leave none behind."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tpu_export.converters.tpu.environment import worker_environment
from tpu_export.converters.tpu.jobs import Job, write_job
from tpu_export.converters.tpu.memory import OutOfMemoryError
from tpu_export.runtime.errors import TpuExportError

log = logging.getLogger(__name__)
_LAST_LINES: Final = 12
_REASON: Final = 400  # the compiler quotes whole kernels in base64
_CAUSE: Final = re.compile(r"^F\d{4} |Fatal|Check failed|^\w*Error\b")


class CompileCrashedError(TpuExportError):
    """A compile worker died without an answer.

    Attributes:
        log: the last lines that it wrote to standard error.
    """

    code = "TPX-0303"

    def __init__(self, topology: str, status: int, log_text: str) -> None:
        """Say how the worker ended, and show its last words."""
        lines = log_text.strip().splitlines()
        end = f"signal {-status}" if status < 0 else f"exit status {status}"
        cause = next(filter(_CAUSE.search, lines), lines[-1] if lines else "no output")
        super().__init__(
            f"the compiler for {topology} died with {end}: {cause}",
            hint="signal 9 is most often the host's memory running out: compile fewer "
            "topologies at once; else please report it",
        )
        self.log = "\n".join(lines[-_LAST_LINES:])


class CompileRefusedError(TpuExportError):
    """The compiler refused the program."""

    code = "TPX-0305"


class Workers:
    """The worker processes that are running. On exit none is."""

    def __init__(self) -> None:
        """Start with none."""
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill every running worker and let none start."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()

    def run(self, job: Job, modules: Mapping[str, bytes]) -> dict[str, bytes]:
        """Compile a job and return the parts of its answer.

        Raises:
            OutOfMemoryError: the program does not fit the chip.
            CompileRefusedError: the compiler refused it.
            CompileCrashedError: the worker died.
        """
        with tempfile.TemporaryDirectory(prefix="tpu-export-") as name:
            directory = Path(name)
            write_job(directory, job, modules)
            status = self._wait(directory)
            text = (directory / "stderr").read_text(errors="replace")
            log.debug("%s:\n%s", job.topology, text)
            if (directory / "error.json").exists():
                raise _refusal(job, json.loads((directory / "error.json").read_text()))
            if status or not (directory / "result.json").exists():
                raise CompileCrashedError(job.name, status, text)
            binaries = {
                path.stem: path.read_bytes() for path in directory.glob("*.bin")
            }
            return {**binaries, "result": (directory / "result.json").read_bytes()}

    def _wait(self, directory: Path) -> int:
        command = [
            sys.executable,
            "-m",
            "tpu_export.converters.tpu.worker",
            str(directory),
        ]
        with (directory / "stderr").open("wb") as stderr:
            with self._lock:
                if self._stopped:
                    raise CancelledError
                # A session of its own: Ctrl-C reaches us alone, and we end the workers.
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    env=worker_environment(),
                    start_new_session=True,
                )
                self._running.add(process)
            with process:
                status = process.wait()
            with self._lock:
                self._running.discard(process)
        return status


def _refusal(job: Job, answer: Mapping[str, object]) -> TpuExportError:
    if isinstance(memory := answer.get("out_of_memory"), dict):
        return OutOfMemoryError.from_json(memory)
    lines = str(answer["refused"]).strip().splitlines() or ["no reason given"]
    kernel = "Mosaic" in lines[0] or "tpu_custom_call" in lines[0]
    return CompileRefusedError(
        f"the compiler for {job.name} refused the program: {lines[0][:_REASON]}",
        hint=(
            "a Pallas kernel of yours is not what Mosaic takes (docs/custom-ops.md)"
            if kernel
            else "check the compiler options and the topology"
        )
        + "; -v shows all it said",
    )
