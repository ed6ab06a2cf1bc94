from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tpu_export.runtime.archive import ArtifactCorruptedError
from tpu_export.runtime.artifact import (
    Artifact,
    ArtifactMissingError,
    ArtifactWriteError,
    ArtifactWriter,
    unpack,
)
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.manifest import FORMAT_VERSION, Manifest
from tpu_export.runtime.program import load

Make = Callable[..., Path]
EMPTY = Manifest(FORMAT_VERSION, (), {}, {}, {}, (), {})


def test_entries_are_views_of_the_file(artifact: Make) -> None:
    opened = Artifact(artifact("linear"))
    assert opened.names[-1] == "manifest.json"
    assert "weights/model.safetensors" in opened
    assert "other" not in opened
    tensors = opened.tensors("weights/model.safetensors", verify=True)
    np.testing.assert_array_equal(tensors["bias"], [1, 2, 3, 4])
    assert not tensors["bias"].flags.writeable
    assert not tensors["bias"].flags.owndata
    opened.verify()


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with ArtifactWriter(tmp_path / name) as writer:
            writer.add_bytes("report/x", b"1")
            writer.finish(EMPTY)
            writer.commit()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_it_can_be_loaded_before_it_has_its_name(tmp_path: Path) -> None:
    final = tmp_path / "m.tpuexe"
    with ArtifactWriter(final) as writer:
        writer.finish(EMPTY)
        assert Artifact(writer.path).manifest.version == 1
        assert not final.exists()
        assert writer.commit() == final
    assert [p.name for p in tmp_path.iterdir()] == ["m.tpuexe"]


def test_the_mode_follows_the_umask(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with ArtifactWriter(tmp_path / "m.tpuexe") as writer:
        writer.finish(EMPTY)
        writer.commit()
    modes = {p.stat().st_mode for p in tmp_path.iterdir()}
    assert len(modes) == 1


def test_an_old_file_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    final = tmp_path / "m.tpuexe"
    final.write_bytes(b"old")
    with ArtifactWriter(final) as writer:
        writer.finish(EMPTY)
    assert final.read_bytes() == b"old"
    with ArtifactWriter(final) as writer:
        writer.finish(EMPTY)
        writer.commit()
    assert Artifact(final).manifest.version == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
def test_interrupted(error: type[BaseException], tmp_path: Path) -> None:
    def provide() -> np.ndarray:
        raise error

    with pytest.raises(error), ArtifactWriter(tmp_path / "m.tpuexe") as writer:
        writer.add_tensors("weights/x.safetensors", {"x": ((4,), "float32", provide)})
    assert [*tmp_path.iterdir()] == []


def test_a_contradictory_manifest_is_not_written(tmp_path: Path) -> None:
    bad = Manifest(0, (), {}, {}, {}, (), {})
    refused = pytest.raises(ArtifactCorruptedError, match="version 0")
    with ArtifactWriter(tmp_path / "m") as writer, refused:
        writer.finish(bad)
    assert [*tmp_path.iterdir()] == []


def writer_at(path: Path) -> None:
    with ArtifactWriter(path):
        pass


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    long = tmp_path / ("n" * 300)
    for place in (tmp_path, tmp_path / "none" / "m", tmp_path / "file" / "m", long):
        with pytest.raises(ArtifactWriteError, match="cannot write") as caught:
            writer_at(place)
        assert caught.value.code == "TPX-0404"
        assert str(place) in caught.value.message
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


NOT_WRITABLE = """
import os, sys
from pathlib import Path
from tpu_export.runtime.artifact import ArtifactWriter, ArtifactWriteError
folder = Path(sys.argv[1])
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    ArtifactWriter(folder / "m.tpuexe")
except ArtifactWriteError as error:
    print(error.code, error.message)
"""
DISK_FULL = """
import resource, signal, sys
from pathlib import Path
from tpu_export.runtime.artifact import ArtifactWriter, ArtifactWriteError
import numpy as np
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
big = np.ones(1 << 20, np.float32)
try:
    with ArtifactWriter(Path(sys.argv[1]) / "m.tpuexe") as writer:
        writer.add_tensors("weights/w.safetensors", {"w": ((1 << 20,), "float32", lambda: big)})
        from tpu_export.runtime.manifest import Manifest
        writer.finish(Manifest(1, (), {}, {}, {}, (), {}))
        writer.commit()
except ArtifactWriteError as error:
    print(error.code, error.message, error.hint)
"""


def python(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="setuid and RLIMIT_FSIZE")
def test_a_folder_without_permission() -> None:
    said = python(NOT_WRITABLE, "/" if os.getuid() == 0 else "/proc")
    assert said.startswith("TPX-0404 cannot write")


# 4 KiB: the header fails; 1 MiB: in the tensor; 4 MiB + 8 KiB: in what the buffer holds last.
@pytest.mark.parametrize("limit", [4096, 1 << 20, (4 << 20) + 8192])
def test_a_full_disk(limit: int, tmp_path: Path) -> None:
    said = python(DISK_FULL, tmp_path, limit)
    assert said.startswith("TPX-0404 cannot write")
    assert "free some space" in said
    assert [*tmp_path.iterdir()] == []


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for place in (tmp_path / "none", tmp_path, tmp_path / "none" / "m"):
        with pytest.raises(ArtifactMissingError, match="cannot read") as caught:
            load(place)
        assert caught.value.code == "TPX-0402"


@pytest.mark.parametrize("content", [b"", b"x", b"PK\5\6" + b"\0" * 18, b"\0" * 5000])
def test_files_of_another_kind(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(
        ArtifactCorruptedError, match=r"corrupted artifact|is no \.tpuexe"
    ):
        load(tmp_path / "m")


def test_unpacking(artifact: Make, tmp_path: Path) -> None:
    folder = unpack(artifact("linear"), tmp_path / "out")
    opened = Artifact(artifact("linear"))
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert files == set(opened.names)
    for name in opened.names:
        assert (folder / name).read_bytes() == bytes(opened.entry(name))
    unpack(artifact("add"), folder)
    assert not (folder / "weights" / "x").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_unpacking_never_replaces_what_is_no_artifact(
    artifact: Make, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    (tmp_path / "file").touch()
    for name in ("mine", "file"):
        with pytest.raises(TpuExportError):
            unpack(artifact("add"), tmp_path / name)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    assert (tmp_path / "file").is_file()
