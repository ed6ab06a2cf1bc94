"""Every version of the format that was released must load. A golden file is never rewritten."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.program import load

GOLDEN = Path(__file__).with_name("golden")
# version 1: weights, prepare, state, a dynamic dimension, executables for cpu and tpu
V1 = GOLDEN / "v1-2026-12.tpuexe"
SHA256 = "d6c0959b67bd8ba0e8c79454a2af1dc5e29da5709f24db3d311e84c6ff1568fc"


def test_it_is_the_file_that_was_released() -> None:
    assert hashlib.sha256(V1.read_bytes()).hexdigest() == SHA256


def test_version_1_computes() -> None:
    program = load(V1, device="cpu", verify="all")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    want = x @ (2 * weight) + np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(program["forward"](x), want)
    assert [int(program["decode"](n)) for n in (1, 2)] == [6, 8]
    for n in (1, 4):
        ones = np.ones((n, 2), np.float32)
        np.testing.assert_array_equal(program["batched"](ones), np.full(n, 2))
    assert program.origin["forward"].startswith("compiled from StableHLO: ")


def test_version_1_says_what_it_said() -> None:
    manifest = Artifact(V1).manifest
    assert manifest.version == 1
    assert manifest.programs["batched"].signature.dims[0].maximum == 8
    assert [x.topology for x in manifest.executables] == ["host", "v5e:1x1"]
    assert manifest.executables[1].layouts == ((1, 0), None, None)


def test_ordinary_zip_tools_read_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(V1) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == list(Artifact(V1).names)
        archive.extractall(tmp_path)
    weights = tmp_path / "weights" / "model.safetensors"
    safetensors = pytest.importorskip("safetensors.numpy")
    assert safetensors.load_file(weights)["bias"].tolist() == [1, 2, 3, 4]
