"""What each command prints and returns when all is well."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tpu_export
from tpu_export.cli.reference import reference

Run = Callable[..., tuple[int, str, str]]


def test_export_prints_stages_parity_and_the_file(tpx: Run, model: Path) -> None:
    output = model.parent / "m.tpuexe"
    status, out, err = tpx(model, "-t", "none", "-o", output)
    assert status == 0
    stages = [line.split()[0] for line in err.splitlines() if line[:1].isalpha()]
    assert [s for s in stages if s in ("capture", "lower", "compile", "write", "parity")] == [
        "capture", "lower", "compile", "write", "parity",
    ]  # fmt: skip
    assert "tpuexe on cpu" in out
    assert f"wrote {output}" in out


def test_export_json_is_one_object(tpx: Run, model: Path) -> None:
    output = model.parent / "m.tpuexe"
    status, out, err = tpx(model, "-t", "none", "-o", output, "--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["parity"]["passed"] is True
    assert found["output"] == str(output)
    assert found["size"] == output.stat().st_size


def test_export_finds_the_only_model(
    tpx: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    status, _, err = tpx("--topology", "none")
    assert status == 0
    assert "model.py (the only one in this folder)" in err
    assert (model.parent / "model.tpuexe").is_file()


def test_export_reads_pyproject(
    tpx: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model.parent / "pyproject.toml").write_text(
        '[tool.tpu-export]\nmodel = "model.py"\ntopologies = ["none"]\noutput = "x.tpuexe"\n'
    )
    inner = model.parent / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert tpx("-q")[0] == 0
    assert (inner / "x.tpuexe").is_file()


def test_no_model_and_several_models(
    tpx: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    (model.parent / "other.py").write_text(model.read_text())
    status, _, err = tpx()
    assert status == 2
    assert "model.py, other.py" in err
    for path in model.parent.glob("*.py"):
        path.unlink()
    status, _, err = tpx()
    assert status == 2
    assert "path.py:factory" in err


def test_stablehlo_is_a_folder(tpx: Run, model: Path) -> None:
    output = model.parent / "m.stablehlo"
    assert tpx(model, "--target", "stablehlo", "-o", output, "-q")[0] == 0
    assert (output / "programs" / "forward.mlirbc").read_bytes()[:4] == b"ML\xefR"
    assert (output / "manifest.json").is_file()
    (model.parent / "precious").mkdir()
    status, _, err = tpx(
        model, "--target", "stablehlo", "-o", model.parent / "precious"
    )
    assert status == 2
    assert "TPX-0002" in err


def test_inspect(tpx: Run, artifact: Path) -> None:
    status, out, _ = tpx("inspect", artifact)
    assert status == 0
    assert "forward(x: float32[2, 4])" in out
    status, out, _ = tpx("inspect", artifact, "--json")
    found = json.loads(out)
    assert found["executables"][0]["platform"] == "cpu"
    assert found["weights"] == 2


def test_inspect_says_what_became_of_integers(tpx: Run, tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(9, 2)

        def forward(self, ids: torch.Tensor, k: torch.Tensor) -> Any:
            return self.embed(ids) * (torch.arange(3) + ids)[:, None], k * 2

    captured = tpu_export.capture(Model().eval(), (torch.arange(3), torch.arange(3)))
    path = captured.lower().save(tmp_path / "m.tpuexe")
    status, out, _ = tpx("inspect", path)
    assert status == 0
    assert "ids: 0 … 8 (embed.weight has 9 rows)" in out
    assert "int64 tensors of forward: 4 of 6 computed in 32 bits" in out
    assert "int64: input k can be any number" in out
    status, out, _ = tpx("inspect", path, "--json")
    kept = [t for t in json.loads(out)["integers"]["forward"] if not t["narrowed"]]
    assert [t["operation"] for t in kept] == ["mul", ""]
    np.savez(tmp_path / "in.npz", ids=np.array([0, 9, 1]), k=np.arange(3))
    status, _, err = tpx("run", path, "-i", tmp_path / "in.npz")
    assert status == 2
    assert "ids holds 9; embed.weight has 9 rows: 0 … 8" in err


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_run(tpx: Run, artifact: Path, tmp_path: Path, suffix: str) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    source, target = tmp_path / f"in.{suffix}", tmp_path / f"out.{suffix}"
    if suffix == "npz":
        np.savez(source, x=x)
    else:
        source.write_text(json.dumps({"x": x.tolist()}))
    status, _, err = tpx("run", artifact, "-i", source, "-o", target)
    assert status == 0
    assert "executable cpu/host" in err
    found = dict(np.load(target)) if suffix == "npz" else json.loads(target.read_text())
    np.testing.assert_allclose(found["n"], x.sum(-1))


def test_parity_of_a_model_and_of_an_artifact(
    tpx: Run, model: Path, artifact: Path
) -> None:
    assert tpx("parity", model)[0] == 0
    status, out, _ = tpx("parity", artifact)
    assert status == 0
    assert "recorded example" in out
    model.write_text(model.read_text().replace("manual_seed(0)", "manual_seed(1)"))
    status, out, _ = tpx("parity", model, "--artifact", artifact, "--json")
    assert status == 1
    assert json.loads(out)["passed"] is False


ANOTHER = {
    "outputs": (
        '"n": x',
        '"m": x',
        "outputs y: float32[2, 3], n: float32[2], the model",
    ),
    "ranks": ("x.sum(-1)", "x.sum()", "the model y: float32[2, 3], n: float32[]"),
    "inputs": ("x", "z", "has the inputs x: float32[2, 4], the model z: float32[2, 4]"),
}


@pytest.mark.parametrize("name", ANOTHER)
def test_an_artifact_of_another_model(
    tpx: Run, artifact: Path, model: Path, name: str
) -> None:
    old, new, words = ANOTHER[name]
    head, body = model.read_text().split("def forward")
    model.write_text(f"{head}def forward{body.replace(old, new)}")
    status, _, err = tpx("parity", model, "--artifact", artifact)
    assert status == 1
    assert "[TPX-0705]" in err
    assert words in err


def test_ops(tpx: Run, model: Path) -> None:
    status, out, _ = tpx("ops", model)
    assert status == 0
    assert "aten.linear.default" in out
    assert tpx("ops", "aten.gelu.default")[:2] == (0, "aten.gelu.default: rule\n")
    both = "aten.add.Tensor: rule\naten.add.Scalar: rule\n"
    assert tpx("ops", "aten.add")[:2] == (0, both)
    assert tpx("ops", "aten._sparse_mm.default")[0] == 1


def test_doctor_zoo_and_explain(tpx: Run) -> None:
    status, out, _ = tpx("doctor", "--json")
    assert status == 0
    assert json.loads(out)["can"]["run on the CPU"].startswith("yes: jaxlib")
    assert "efficientnet-lite0" in tpx("zoo", "list")[1]
    assert tpx("explain", "TPX-0201")[1].startswith("TPX-0201 ")


def test_the_reference_is_fresh() -> None:
    page = Path(__file__).parents[2] / "docs" / "cli.md"
    assert page.read_text() == reference(), "run: make docs"


def test_help_imports_nothing_heavy(process: Any) -> None:
    code = """
import sys
from tpu_export.cli.failures import run_safely
from tpu_export.cli.main import group
run_safely(group, ["--help"])
print({"torch", "jax", "numpy", "rich"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"


TYPED = """
import torch

class Model(torch.nn.Module):
    def forward(self, ids, half, flag):
        return ids + 1, half * 2, ~flag

def get_model():
    return Model()

def get_inputs():
    half = torch.ones(2, dtype=torch.bfloat16)
    return torch.ones(2, dtype=torch.int64), half, torch.ones(2, dtype=torch.bool)
"""


def test_run_keeps_dtypes(tpx: Run, tmp_path: Path) -> None:
    import ml_dtypes

    (tmp_path / "typed.py").write_text(TYPED)
    built, source = tmp_path / "typed.tpuexe", tmp_path / "in.json"
    assert tpx(tmp_path / "typed.py", "-t", "none", "-o", built, "-q")[0] == 0
    values = {"ids": [1, 2], "half": [1.5, 2], "flag": [True, False]}
    source.write_text(json.dumps(values))
    status, out, _ = tpx("run", built, "-i", source)
    assert status == 0
    assert list(json.loads(out).values()) == [[2, 3], [3.0, 4.0], [False, True]]
    for name, wrong in {"ids": [1.5, 2], "flag": [1, 0]}.items():
        source.write_text(json.dumps({**values, name: wrong}))
        status, _, err = tpx("run", built, "-i", source)
        assert status == 2
        assert "is expected" in err
    arrays = {"ids": np.array([1, 2]), "flag": np.array([True, False])}
    half = np.array([1.5, 2], ml_dtypes.bfloat16)
    np.savez(tmp_path / "in.npz", half=half, **arrays)
    argv = ["run", built, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz"]
    assert tpx(*argv)[0] == 0
    found = list(np.load(tmp_path / "out.npz").values())
    assert [str(a.dtype) for a in found] == ["int64", "float32", "bool"]
    np.testing.assert_array_equal(found[1], [3, 4])


def test_zoo_checks_the_page_before_it_works(tpx: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    page = tmp_path / "file" / "zoo.md"
    argv = ["zoo", "export", "mlp", "-o", tmp_path / "z", "--write-docs", page]
    status, _, err = tpx(*argv)
    assert status == 2
    assert "cannot make" in err
    assert "capture" not in err
