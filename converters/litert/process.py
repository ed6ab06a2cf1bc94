"""Run our own modules as worker processes: an engine or converter that dies takes one along."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tpu_export.converters.tpu.environment import worker_environment


def run_module(module: str, *argv: str) -> tuple[int, str]:
    """Run a module to its end; returns the exit status and the end of its stderr."""
    done = subprocess.run(
        [sys.executable, "-m", module, *argv],
        env=worker_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, meaningful(done.stderr.splitlines())


def meaningful(lines: Sequence[str], count: int = 6) -> str:
    """Return the last lines that say something."""
    noise = ("INFO:", "WARNING:", "I0000", "W0000")
    kept = [
        line.strip() for line in lines if line.strip() and not line.startswith(noise)
    ]
    return " | ".join(kept[-count:])
