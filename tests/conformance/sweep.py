"""Sweep torch's op_db and module_db; results are data, one JSON line an entry.

    PYTHONPATH=tests python -m conformance.sweep [--suite op] [--dtypes float32,int64]
        [--names add,mul] [--samples N] [--seconds S] [--jobs 2] [--write | --check]

--write replaces the swept entries in results.jsonl; --check fails where an entry that
passed there does not pass now.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from conformance.samples import DTYPES, module_table, op_table

RESULTS = Path(__file__).with_name("results.jsonl")
GRACE = 120.0  # seconds that one sample may take beyond an entry's budget
Entry = dict[str, Any]
GOOD = ("pass", "no sample", "not exportable")
FAILED: Entry = {"counts": {"failed": 1}}


def entries(suites: list[str], dtypes: list[str], names: list[str]) -> list[Entry]:
    """Return what torch says it supports on the CPU, among what is asked for."""
    found = []
    tables = {"op": op_table, "module": module_table}
    for suite in suites:
        for name, info in tables[suite]().items():
            supported = info.supported_dtypes("cpu") if suite == "op" else info.dtypes
            found += [
                {"suite": suite, "name": name, "dtype": dtype}
                for dtype in dtypes
                if DTYPES[dtype] in supported and (not names or name in names)
            ]
    return found


def key(entry: Entry) -> tuple[str, str, str]:
    """Return what identifies an entry."""
    return entry["suite"], entry["name"], entry["dtype"]


def load_results() -> dict[tuple[str, str, str], Entry]:
    """Read the recorded results."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {key(entry): entry for entry in map(json.loads, lines)}


def write_results(new: list[Entry]) -> None:
    """Replace the entries in the recorded results."""
    merged = load_results() | {key(entry): entry for entry in new}
    lines = [json.dumps(merged[k], sort_keys=True) for k in sorted(merged)]
    RESULTS.write_text("\n".join(lines) + "\n")


def verdict(entry: Entry) -> str:
    """Return the worst status of an entry's samples: what it counts as."""
    counts = entry["counts"]
    for status in ("crashed", "wrong", "failed", "refused"):
        if counts.get(status):
            return status
    if counts.get("pass") or counts.get("drawn"):
        return "pass"
    return "not exportable" if counts.get("not exportable") else "no sample"


class Worker:
    """A process that judges entries; it is started anew when it dies or hangs."""

    def __init__(self, samples: int, seconds: float) -> None:
        self.limit = seconds + GRACE
        self.command = [
            sys.executable, "-m", "conformance.worker",
            "--samples", str(samples), "--seconds", str(seconds),
        ]  # fmt: skip
        self.process: subprocess.Popen[str] | None = None

    def judge(self, entry: Entry) -> Entry:
        """Return the entry with its counts; a worker's death is a count too."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True, env=os.environ,
            )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(entry) + "\n")
        self.process.stdin.flush()
        for line in self._lines(time.monotonic() + self.limit):
            if line.startswith("RESULT "):
                return dict(json.loads(line.removeprefix("RESULT ")))
        code = self.process.poll()
        self.close()
        why = "no answer in time" if code is None else f"the process ended with {code}"
        return entry | {"counts": {"crashed": 1}, "reasons": {"crashed": why}}

    def _lines(self, deadline: float) -> Iterator[str]:
        assert self.process is not None
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while selector.select(max(0.0, deadline - time.monotonic())):
                line = self.process.stdout.readline()
                if not line:
                    self.process.wait()
                    return
                yield line

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


def sweep(
    work: list[Entry], samples: int, seconds: float, jobs: int, done: list[Entry]
) -> None:
    """Judge every entry, `jobs` at a time, into `done`."""
    queue: Queue[Entry] = Queue()
    for entry in work:
        queue.put(entry)

    def run() -> None:
        worker = Worker(samples, seconds)
        try:
            while True:
                done.append(worker.judge(queue.get_nowait()))
                show(done[-1], len(done), len(work))
        except Empty:
            worker.close()

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(run) for _ in range(jobs)]:
            future.result()


def show(entry: Entry, n: int, total: int) -> None:
    """Print what is not a pass, and now and then how far it is."""
    result = verdict(entry)
    if result not in GOOD:
        reason = entry["reasons"].get(result, "")
        print(
            f"{result:8} {'/'.join(key(entry))} {entry['counts']} {reason}", flush=True
        )
    if n % 50 == 0:
        print(f"-- {n} of {total}", flush=True)


def regressions(
    results: Sequence[Entry], recorded: Mapping[tuple[str, str, str], Entry]
) -> list[Entry]:
    """Return the entries that are recorded as passing, and do not pass."""
    passed = {k for k, entry in recorded.items() if verdict(entry) == "pass"}
    return [e for e in results if key(e) in passed and verdict(e) not in GOOD]


def main() -> None:
    """Sweep, then write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="op,module")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--names", default="")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--every", type=int, default=1, help="only each N-th entry")
    parser.add_argument("--missing", action="store_true", help="what does not pass yet")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    names = [n for n in given.names.split(",") if n]
    work = entries(given.suite.split(","), given.dtypes.split(","), names)
    recorded = load_results()  # before anything is written
    if given.missing:
        work = [e for e in work if verdict(recorded.get(key(e), FAILED)) not in GOOD]
    results: list[Entry] = []
    try:
        sweep(work[:: given.every], given.samples, given.seconds, given.jobs, results)
    finally:
        if given.write:
            write_results(results)
    totals = Counter(map(verdict, results))
    print(f"{len(results)} entries: {dict(totals)}")
    if given.check:
        worse = regressions(results, recorded)
        for entry in worse:
            print("REGRESSION", "/".join(key(entry)), entry["reasons"])
        sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
