"""What this version, or the chip, cannot take: the command says so, and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpu_export.runtime.archive import ArchiveWriter
from tpu_export.runtime.artifact import Artifact

Run = Callable[..., tuple[int, str, str]]


def with_manifest(source: Path, target: Path, **changes: Any) -> Path:
    """Write an artifact again, with other values at the top of its manifest."""
    opened = Artifact(source)
    manifest = json.loads(bytes(opened.entry("manifest.json")))
    changed = {"manifest.json": json.dumps({**manifest, **changes}).encode()}
    with target.open("w+b") as file:
        writer = ArchiveWriter(file)
        for name in opened.names:
            writer.add(name, [changed.get(name, bytes(opened.entry(name)))])
        writer.finish()
    return target


NEWER = {
    "version": ({"version": 2}, "format version 2"),
    "version, and what it brings": ({"version": 9, "new": 1}, "format version 9"),
    "feature": ({"features": ["sharded"]}, "features sharded"),
}


@pytest.mark.parametrize("name", NEWER)
def test_an_artifact_of_a_newer_version(
    tpx: Run, artifact: Path, tmp_path: Path, name: str
) -> None:
    changes, words = NEWER[name]
    path = with_manifest(artifact, tmp_path / "newer.tpuexe", **changes)
    for argv in (["inspect", path], ["run", path, "-i", "x.npz"], ["parity", path]):
        status, out, err = tpx(*argv)
        assert (status, out) == (1, "")
        assert "[TPX-0403]" in err
        assert words in err
        assert "pip install --upgrade" in err


def test_an_artifact_written_again_is_read(
    tpx: Run, artifact: Path, tmp_path: Path
) -> None:
    assert tpx("inspect", with_manifest(artifact, tmp_path / "same.tpuexe"))[0] == 0


# 18 GiB on a chip of 16; the example inputs take 280 kB, and nothing runs before the compile.
TOO_LARGE = """
import torch

class Outer(torch.nn.Module):
    def forward(self, x):
        return x[:, None] * x[None, :]

def get_model():
    return Outer()

def get_inputs():
    return (torch.ones(70_000),)
"""


def test_a_chip_with_too_little_memory(
    tpx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_EXPORT_CACHE", str(tmp_path / "cache"))
    model, output = tmp_path / "outer.py", tmp_path / "outer.tpuexe"
    model.write_text(TOO_LARGE)
    status, out, err = tpx(model, "-t", "v5e-1", "-o", output, "-q")
    assert (status, out) == (1, "")
    sizes = re.search(r"\[TPX-0304\]: .*needs ([\d.]+) GiB of ([\d.]+) GiB", err)
    assert sizes, err
    assert float(sizes[1]) > 18
    assert 15 < float(sizes[2]) <= 16
    assert "outer.py:6" in err
    assert "smaller batch" in err
    assert not output.exists()
    assert list(tmp_path.glob(".*partial")) == []
