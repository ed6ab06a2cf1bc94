"""What a process and all below it hold, as proportional set size: ``litert_memory.py PID``.

Prints "seconds bytes" lines until it is ended. A process of its own: a thread would wait for
the interpreter lock of the process that it watches.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path


class Watch:
    """Watches this process and its children while the block runs."""

    def __enter__(self) -> Watch:
        self._file = tempfile.NamedTemporaryFile("w", suffix=".samples")
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(_own_pid())], stdout=self._file
        )
        while not self._samples():
            time.sleep(0.01)
        self.start = self._samples()[-1][1]
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.05)
        self._process.terminate()
        self._process.wait()
        self._found = self._samples()
        self._file.close()

    def growth(self, start: float, end: float) -> int:
        """Return the most that was held above the start, between two monotonic times."""
        inside = [held for when, held in self._found if start <= when <= end]
        return max(inside, default=self.start) - self.start

    def _samples(self) -> list[tuple[float, int]]:
        lines = Path(self._file.name).read_text().splitlines()
        pairs = [line.split() for line in lines]
        return [(float(p[0]), int(p[1])) for p in pairs if len(p) == 2]


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)


def held(pid: int, without: int) -> int:
    """Return the bytes of a process and its descendants; memory that is shared counts once."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (OSError, ValueError):  # it has ended
        return 0
    children = [c for c in children if _stack(c) != _stack(pid)]
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    below = sum(held(child, without) for child in children if child != without)
    return sum(map(int, sizes)) * 1024 + below


def _stack(pid: int) -> str:
    """Return where its stack begins: a child has its parent's memory until it starts a program."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[25]
    except OSError:
        return ""


def main() -> None:
    watched, own = int(sys.argv[1]), _own_pid()
    while True:
        now, size = time.monotonic(), held(watched, own)
        print(f"{now} {size}", flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    main()
