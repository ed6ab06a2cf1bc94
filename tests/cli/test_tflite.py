"""run, inspect and diff of a .tflite."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tpu_export.cli.failures import run_safely
from tpu_export.cli.main import group

Run = Callable[..., tuple[int, str, str]]
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        y = self.fc(x)
        self.total.add_(y.sum(0))
        return {"y": y, "total": self.total.clone()}

def get_model():
    torch.manual_seed(0)
    return Model().eval()

def get_inputs():
    return (torch.ones(2, 4),)

def get_dynamic_shapes():
    return {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.tflite of two sizes and three labels, b.tflite quantized, x.npz."""
    folder = tmp_path_factory.mktemp("tflite")
    (folder / "model.py").write_text(MODEL)
    (folder / "labels.txt").write_text("cat\ndog\nfox\n")
    base = [
        str(folder / "model.py"),
        "--target",
        "litert",
        "-q",
        "--bucket",
        "batch=2,3",
    ]
    more = ["--labels", str(folder / "labels.txt"), "--licence", "MIT"]
    assert run_safely(group, [*base, *more, "-o", str(folder / "a.tflite")]) == 0
    more = ["--quantize", "dynamic-int8", "--golden", "none"]
    assert run_safely(group, [*base, *more, "-o", str(folder / "b.tflite")]) == 0
    np.savez(folder / "x.npz", x=np.eye(3, 4, dtype=np.float32))
    return folder


def expected(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    scope: dict[str, Any] = {}
    exec(MODEL, scope)
    with torch.no_grad():
        y: np.ndarray[Any, Any] = scope["get_model"]()(torch.from_numpy(x))["y"].numpy()
    return y


@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
def test_run_takes_the_signature_that_fits(tpx: Run, files: Path, engine: str) -> None:
    target = files / f"{engine}.npz"
    argv = ["-i", files / "x.npz", "-o", target, "--engine", engine]
    status, _, err = tpx("run", files / "a.tflite", *argv)
    assert status == 0
    assert f"batch3 in LiteRT's {engine}" in err
    want = expected(np.eye(3, 4, dtype=np.float32))
    found = np.load(target)
    np.testing.assert_allclose(found["y"], want, rtol=1e-5, atol=1e-6)
    # The state begins as the metadata says, and comes back.
    np.testing.assert_allclose(found["state.total"], want.sum(0), rtol=1e-5, atol=1e-6)
    best = ("cat", "dog", "fox")[int(want[0].argmax())]
    assert f"y: {best} " in err


def test_run_goes_on_from_state_that_is_given(
    tpx: Run, files: Path, tmp_path: Path
) -> None:
    total, x = np.full(3, 7, np.float32), np.ones((2, 4), np.float32)
    np.savez(tmp_path / "x.npz", **{"x": x, "state.total": total})
    status, out, _ = tpx("run", files / "a.tflite", "-i", tmp_path / "x.npz")
    assert status == 0
    want = 7 + expected(x).sum(0)
    np.testing.assert_allclose(json.loads(out)["total"], want, rtol=1e-5)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.ones((4, 4), np.float32)}, r"x is float32\[4, 4\], expected float32"),
        ({"x": np.ones((2, 4), np.float64)}, "x is float64"),
        ({"z": np.ones((2, 4), np.float32)}, "unknown input z; missing input x"),
        ({}, "missing input x"),
    ],
)  # fmt: skip
def test_run_refuses_other_inputs(
    tpx: Run, files: Path, tmp_path: Path, arrays: dict[str, Any], words: str
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    status, out, err = tpx("run", files / "a.tflite", "-i", tmp_path / "x.npz")
    assert (status, out) == (2, "")
    assert words.replace("\\", "") in err
    assert "forward_batch2 takes state.total: float32[3], x: float32[2, 4]" in err


def test_golden_outputs_are_replayed(tpx: Run, files: Path, tmp_path: Path) -> None:
    status, out, _ = tpx("run", files / "a.tflite", "--golden")
    assert status == 0
    rows = [line.split() for line in out.splitlines()[1:]]
    assert {row[0] for row in rows} == {"forward_batch2", "forward_batch3"}
    assert {row[-1] for row in rows} == {"ok"}
    # Another bias, in the file's bytes: the golden outputs differ.
    scope: dict[str, Any] = {}
    exec(MODEL, scope)
    bias = scope["get_model"]().fc.bias.detach().numpy().tobytes()
    data = (files / "a.tflite").read_bytes()
    assert bias in data
    (tmp_path / "c.tflite").write_bytes(data.replace(bias, bytes(len(bias))))
    status, out, _ = tpx("run", tmp_path / "c.tflite", "--golden")
    assert status == 1
    assert "FAILED" in out


def test_golden_without_arrays_is_refused(
    tpx: Run, files: Path, artifact: Path
) -> None:
    for path, words in ((files / "b.tflite", "--golden all"), (artifact, "no .tflite")):
        status, _, err = tpx("run", path, "--golden")
        assert status == 2
        assert words in err
    status, _, err = tpx("run", files / "a.tflite", "--golden", "-i", files / "x.npz")
    assert status == 2


def test_inspect_shows_names_metadata_and_constants(tpx: Run, files: Path) -> None:
    status, out, _ = tpx("inspect", files / "a.tflite")
    assert status == 0
    for words in (
        "licence: MIT", "labels: 3", "forward_batch3", "x: float32[3, 4]", "FULLY_CONNECTED",
        "proof: tflite compiled", "golden: forward_batch2, outputs of torch eager",
    ):  # fmt: skip
        assert words in out, words
    found = json.loads(tpx("inspect", files / "b.tflite", "--json")[1])
    assert found["metadata"]["quantization"]["recipe"] == "dynamic-int8"
    assert found["signatures"]["forward_batch2"]["ops"]["FULLY_CONNECTED"] == 1
    assert found["constant_bytes"]["int8"] == 12


def test_inspect_of_a_damaged_file(tpx: Run, files: Path, tmp_path: Path) -> None:
    data = (files / "a.tflite").read_bytes()
    for cut in (0, 6, 40, 500, len(data) // 2):
        path = tmp_path / "t.tflite"
        path.write_bytes(data[:cut])
        status, _, err = tpx("inspect", path)
        assert status == 1
        assert "TPX-0650" in err
    assert tpx("inspect", tmp_path / "none.tflite")[0] == 1


def test_diff_says_what_differs(tpx: Run, files: Path) -> None:
    status, out, _ = tpx("diff", files / "a.tflite", files / "a.tflite")
    assert (status, out.strip()) == (0, "the same bytes")
    status, out, _ = tpx("diff", files / "a.tflite", files / "b.tflite")
    assert status == 1
    assert "float32[3, 4] -> int8[3, 4] of 3 scales" in out
    assert "metadata licence: MIT -> none" in out
    found = json.loads(tpx("diff", files / "b.tflite", files / "a.tflite", "--json")[1])
    assert not found["same"]
    assert {"weights", "metadata", "size"} <= {d["what"] for d in found["differences"]}


def test_diff_takes_tflite_files_only(tpx: Run, files: Path, artifact: Path) -> None:
    status, _, err = tpx("diff", files / "a.tflite", artifact)
    assert status == 2
    assert "is no .tflite" in err


def test_run_refuses_sizes_outside_of_the_ranges(
    tpx: Run, files: Path, tmp_path: Path
) -> None:
    target = tmp_path / "any.tflite"
    base = [files / "model.py", "--target", "litert", "-q", "-o", target]
    assert tpx(*base, "--dynamic-dims", "symbolic")[0] == 0
    for n, wanted in ((8, 0), (9, 2)):
        np.savez(tmp_path / "x.npz", x=np.ones((n, 4), np.float32))
        status, _, err = tpx("run", target, "-i", tmp_path / "x.npz")
        assert status == wanted
    assert "dimension batch = 9 is outside 1 … 8: x has size 9 in axis 0" in err
    assert "forward(x: float32[batch, 4])" in err
