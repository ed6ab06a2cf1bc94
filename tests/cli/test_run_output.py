"""However writing the outputs of `run` ends, no part of a file is left."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in.json").write_text(json.dumps({"x": [[1, 1, 1, 1]] * 2}))
    return tmp_path / "in.json"


def disk_full() -> None:
    raise OSError(28, "No space left on device")


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fault() -> None:
    raise MemoryError


ENDS = {
    "disk full": (disk_full, 2, "cannot write"),
    "Ctrl-C": (ctrl_c, 130, "interrupted"),
    "our fault": (fault, 1, "MemoryError"),
}


@pytest.mark.parametrize("old", [None, b"an older result"])
@pytest.mark.parametrize("name", ENDS)
def test_a_write_that_fails(
    tpx: Run,
    artifact: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    old: bytes | None,
) -> None:
    end, expected, words = ENDS[name]

    def half(file: IO[bytes], **_: Any) -> None:
        file.write(b"half")
        end()

    target = source.parent / "out.npz"
    if old is not None:
        target.write_bytes(old)
    before = sorted(source.parent.iterdir())
    monkeypatch.setattr(np, "savez", half)
    status, _, err = tpx("run", artifact, "-i", source, "-o", target)
    assert status == expected
    assert words in err
    assert sorted(source.parent.iterdir()) == before
    assert old is None or target.read_bytes() == old


TERMINATED = """
import os, signal, sys
import numpy as np
from tpu_export.cli.main import main

def savez(file, **arrays):
    file.write(b"half")
    file.flush()
    print([n for n in os.listdir() if "out.npz" in n], flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

np.savez = savez
sys.argv[1:] = ["run", sys.argv[1], "-i", "in.json", "-o", "out.npz"]
main()
"""


def test_terminated(artifact: Path, source: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED, str(artifact)],
        cwd=source.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "partial" in done.stdout  # it was there while it was written
    assert [p.name for p in source.parent.iterdir()] == ["in.json"]


def test_a_file_beside_it_is_not_touched(
    tpx: Run, artifact: Path, source: Path
) -> None:
    own = source.parent / "out.json.partial"
    own.write_text("the user's own")
    assert tpx("run", artifact, "-i", source, "-o", source.parent / "out.json")[0] == 0
    assert own.read_text() == "the user's own"
    assert {p.name for p in source.parent.iterdir()} == {
        "in.json",
        "out.json",
        "out.json.partial",
    }


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_file_is_not_replaced(
    tpx: Run, artifact: Path, source: Path, kind: str
) -> None:
    target = source.parent / "out.npz"
    if kind == "folder":
        target.mkdir()
    else:
        os.mkfifo(target)
    mode = target.stat().st_mode
    status, _, err = tpx("run", artifact, "-i", source, "-o", target)
    assert status == 2
    assert "no regular file" in err
    assert stat.S_IFMT(target.stat().st_mode) == stat.S_IFMT(mode)
