"""The model file, commands and serving code of docs/dynamic-shapes.md, pasted and run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tpu_export.runtime.artifact import Artifact

Run = Callable[..., tuple[int, str, str]]
PAGE = (Path(__file__).parents[2] / "docs" / "dynamic-shapes.md").read_text()
MODEL, SERVE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^\$ (.*)$", PAGE, re.M)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "classify.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_is_true(tpx: Run, folder: Path) -> None:
    export, inspect = COMMANDS
    status, out, err = tpx(*export)
    assert status == 0, err
    assert out.count("batch=8 seq=128") == 3  # proven, estimated, noted
    status, out, _ = tpx(*inspect)
    assert "forward(ids: int64[batch, seq])\n" in out
    assert "  batch: 0 … 64\n  seq: 0 … 512\n  ids: 0 … 999 (" in out
    assert "\n  buckets: batch=1 seq=16, " in out

    (folder / "serve.py").write_text(SERVE)
    served = subprocess.run(
        [sys.executable, "serve.py"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    said = [line.replace("`", "") for line in PAGE.splitlines()]
    assert served[0].startswith("[{'batch': 1, 'seq': 16}, ")
    assert served[1] == "executable cpu/host batch=8 seq=128 0"
    assert served[2].startswith(
        "compiled from StableHLO: the artifact has no executable for batch=3 seq=100, but"
    )
    assert served[2].endswith(" 1")
    assert f"{served[3]}." in said


def test_its_settings_are_read(tpx: Run, folder: Path) -> None:
    (folder / "pyproject.toml").write_text(SETTINGS)
    assert tpx("-t", "none", "-q", "-o", "m.tpuexe")[0] == 0
    sizes = [
        tuple(x.dims.values()) for x in Artifact(Path("m.tpuexe")).manifest.executables
    ]
    assert sizes == [(1, 16), (1, 128), (8, 16), (8, 128)]
