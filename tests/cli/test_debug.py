"""tpu-export debug: what it prints, saves and returns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tpu_export.converters.stablehlo.registry import OWN

PAGE = Path(__file__).parents[2] / "docs" / "debug.md"
Run = Callable[..., tuple[int, str, str]]
WRONG = """
import tpu_export

@tpu_export.lowers(torch.ops.aten.linear.default)
def rule(x, w, b=None):
    return x @ w.T
"""


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    before = dict(OWN)
    yield
    OWN.clear()
    OWN.update(before)


def test_a_model_that_agrees(tpx: Run, model: Path) -> None:
    assert tpx("debug", model) == (0, "ops: 2 ok\n", "")
    status, out, _ = tpx("debug", model, "--json")
    assert (status, json.loads(out)) == (
        0,
        {"passed": True, "counts": {"ok": 2}, "rows": []},
    )


def test_a_model_without_ops(tpx: Run, tmp_path: Path) -> None:
    path = tmp_path / "same.py"
    path.write_text(
        "import torch\ndef get_model():\n    return torch.nn.Identity()\n"
        "def get_inputs():\n    return (torch.ones(2),)\n"
    )
    said = "no ops: the model only passes values through\n"
    assert tpx("debug", path) == (0, said, "")
    assert json.loads(tpx("debug", path, "--json")[1])["passed"]
    assert tpx("ops", path) == (0, said, "")
    assert tpx("ops", path, "--json") == (0, "[]\n", "")


def test_a_model_that_differs(tpx: Run, model: Path, tmp_path: Path) -> None:
    model.write_text(model.read_text() + WRONG)
    status, out, _ = tpx("debug", model, "--save", tmp_path / "saved")
    assert status == 1
    header, line, shapes, saved, end = out.splitlines()
    assert header.startswith("node    op ")
    assert line.split()[:4] == ["linear", "aten.linear.default", "fc", "model.py:10"]
    assert shapes == "linear: float32[2, 4], float32[3, 4], float32[3] -> float32[2, 3]"
    folder = tmp_path / "saved" / "forward-0000-linear"
    assert saved == f"  saved in {folder}"
    assert end == "ops: 1 differs"
    assert {p.name for p in folder.iterdir()} == {
        "inputs.npz",
        "outputs.npz",
        "repro.py",
    }
    assert tpx("debug", folder / "repro.py")[0] == 1
    status, out, _ = tpx("debug", model, "--keep-going", "--json")
    found = json.loads(out)
    assert (status, found["counts"]) == (1, {"differs": 1, "ok": 1})
    assert found["rows"][0]["op"] == "aten.linear.default"


OP = """
import torch

@torch.library.custom_op("tpx_cli_debug::half", mutates_args=())
def half(x: torch.Tensor) -> torch.Tensor:
    return x / 2

half.register_fake(torch.empty_like)
"""
RULE = """
import tpu_export

from ops import half

@tpu_export.lowers(half)
def rule(x):
    return x / 3
"""
IMPORTS = """
import torch

import {module}

def get_model():
    return lambda x: torch.ops.tpx_cli_debug.half(x)

def get_inputs():
    return (torch.ones(2),)
"""


@pytest.mark.parametrize(
    ("module", "verdict"), [("rules", "differs"), ("ops", "failed")]
)
def test_ops_and_rules_in_a_file_that_the_model_file_imports(
    tpx: Run, process: Any, tmp_path: Path, module: str, verdict: str
) -> None:
    for name, text in (("ops", OP), ("rules", RULE)):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "model.py").write_text(IMPORTS.format(module=module))
    argv = ("debug", tmp_path / "model.py", "--save", tmp_path / "saved", "--json")
    done = process(*argv)
    assert (done.returncode, json.loads(done.stdout)["counts"]) == (1, {verdict: 1})
    done = process("debug", *(tmp_path / "saved").glob("*/repro.py"), "--json")
    assert (done.returncode, json.loads(done.stdout)["counts"]) == (1, {verdict: 1})


def test_a_folder_that_cannot_be_made(tpx: Run, model: Path) -> None:
    status, _, err = tpx("debug", model, "--save", model / "inner")
    assert status == 2
    assert "TPX-0002" in err
    assert "choose another --save" in err


def test_the_page_is_true(
    tpx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    code, console = re.findall(r"```(?:python|console)\n(.*?)```", page, re.DOTALL)[:2]
    Path("model.py").write_text(code)
    status, out, _ = tpx("debug", "model.py", "--save", "saved")
    assert status == 1
    said = console.split("--save saved\n")[1].split("$ python")[0]
    # The last digits of an error are the host's.
    assert re.sub(r"\d\de-", "e-", out) == re.sub(r"\d\de-", "e-", said)
    assert tpx("debug", "saved/forward-0001-gelu/repro.py")[0] == 1
