"""Bad input: one clear error with a code, the right exit status, and no file left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]

SYNTAX = "def get_model(:\n"
NO_MODEL = "def get_inputs():\n    return ()\n"
RAISES = "import torch\nraise RuntimeError('boom')\n"
HEAD = "import torch\nfrom torch import nn\n"
MISFIT = (
    HEAD
    + "def get_model(): return nn.Linear(2, 2)\ndef get_inputs(): return (torch.ones(1, 2), 3)\n"
)
REFUSED = (
    HEAD
    + """
class M(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

def get_model(): return M()
def get_inputs(): return (torch.ones(2),)
"""
)
UNSUPPORTED = (
    HEAD
    + """
@torch.library.custom_op("tpx_cli::secret", mutates_args=())
def secret(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
secret.register_fake(torch.empty_like)

class M(nn.Module):
    def forward(self, x):
        return secret(x)

def get_model(): return M()
def get_inputs(): return (torch.ones(2),)
"""
)

MODELS = {
    "missing file": (None, "TPX-0111"),
    "syntax error": (SYNTAX, "TPX-0112"),
    "no get_model": (NO_MODEL, "TPX-0113"),
    "raises on import": (RAISES, "TPX-0112"),
    "inputs do not fit": (MISFIT, "TPX-0101"),
    "torch.export refuses": (REFUSED, "TPX-0103"),
    "unsupported op": (UNSUPPORTED, "TPX-0201"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_model_files(tpx: Run, tmp_path: Path, name: str) -> None:
    text, code = MODELS[name]
    path = tmp_path / f"model_{name.replace(' ', '_').replace('.', '_')}.py"
    if text is not None:
        path.write_text(text)
    output = tmp_path / "out.tpuexe"
    status, out, err = tpx(path, "-t", "none", "-o", output, "-q")
    assert (status, out) == (1, "")
    assert re.match(rf"error\[{code}\]: \S.*\n  \S", err), err
    assert not output.exists()
    assert list(tmp_path.glob("*.partial")) == []


USAGE = {
    "unknown target": (
        ["MODEL", "--target", "phone"],
        2,
        "TPX-0002",
        "cloud-tpu, litert",
    ),
    "unknown topology": (["MODEL", "-t", "v5x-4"], 2, "TPX-0301", "v5"),
    "empty topology": (["MODEL", "-t", ""], 2, "TPX-0002", "-t none"),
    "only commas": (["MODEL", "-t", " ,", "-t", ""], 2, "TPX-0002", "-t none"),
    "none and others": (["MODEL", "-t", "v5e-1,none"], 2, "TPX-0002", "alone"),
    "bucket of a static model": (
        ["MODEL", "-t", "none", "--bucket", "batch=1"],
        2,
        "TPX-0307",
        "dynamic_shapes",
    ),
    "bucket without sizes": (
        ["MODEL", "--bucket", "batch"],
        2,
        "TPX-0002",
        "batch=1,8",
    ),
    "bucket of words": (["MODEL", "--bucket", "batch=1,big"], 2, "TPX-0002", "'big'"),
    "bucket of fractions": (["MODEL", "--bucket", "batch=1.5"], 2, "TPX-0002", "'1.5'"),
    "bucket of nothing": (["MODEL", "--bucket", "batch=1,"], 2, "TPX-0002", "''"),
    "bucket for StableHLO": (
        ["MODEL", "--target", "stablehlo", "--bucket", "batch=1"],
        2,
        "TPX-0307",
        "cloud-tpu and litert",
    ),
    "topology for phones": (
        ["MODEL", "--target", "litert", "-t", "v5e-1"],
        2,
        "TPX-0002",
        "-t v5e-1 has no use with --target litert",
    ),
    "topology of a portable program": (
        ["MODEL", "--target", "stablehlo", "-t", "v5e-1", "-t", "v6e-1"],
        2,
        "TPX-0002",
        "-t v5e-1,v6e-1 has no use",
    ),
    "negative limit": (["MODEL", "--tolerance", "-1"], 2, "TPX-0002", "no limit"),
    "limit of nan": (["debug", "MODEL", "--tolerance", "nan"], 2, "TPX-0002", "no l"),
    "endless limit": (["parity", "MODEL", "--tolerance", "inf"], 2, "TPX-0002", "no l"),
    "unknown option": (["MODEL", "--fast"], 2, "TPX-0002", "--help"),
    "near option": (["MODEL", "--topolgy", "v5e-1"], 2, "TPX-0002", "'--topology'"),
    "near option of all": (["--verison"], 2, "TPX-0002", "did you mean --version?"),
    "near command": (["exprt"], 2, "TPX-0002", "did you mean export?"),
    "near command of two": (
        ["Inspct", "MODEL"],
        2,
        "TPX-0002",
        "did you mean inspect?",
    ),
    "near command in zoo": (["zoo", "lst"], 2, "TPX-0002", "Did you mean 'list'?"),
    "near target": (["MODEL", "--target", "tflite"], 2, "TPX-0002", "mean litert? tar"),
    "near topology": (["MODEL", "-t", "v5e1"], 2, "TPX-0301", "near names: v5e-1, "),
    "the CPU as a topology": (["MODEL", "-t", "cpu"], 2, "TPX-0301", "give -t none"),
    "near zoo model": (
        ["zoo", "export", "vit"],
        2,
        "TPX-0801",
        "did you mean vit-b-16",
    ),
    "zoo model without zoo:": (["resnet50"], 2, "TPX-0110", "mean zoo:resnet50"),
    "no word near": (["gibberish"], 2, "TPX-0110", "path.py"),
    "unknown zoo model": (["zoo:resnet5"], 2, "TPX-0801", "resnet50"),
    "unknown form": (["gs://bucket/model"], 2, "TPX-0110", "path.py"),
    "unknown device": (
        ["run", "ARTIFACT", "-i", "-", "--device", "gpu"],
        2,
        "TPX-0502",
        "tpu:N",
    ),
    "unknown signature": (
        ["run", "ARTIFACT", "-i", "-", "--signature", "decode"],
        2,
        "TPX-0504",
        "forward",
    ),
    "unknown code": (["explain", "TPX-9999"], 2, "TPX-0002", "near"),
    "op of no namespace": (["ops", "gelu"], 2, "TPX-0110", "mean aten.gelu.default?"),
    "op of torch": (["ops", "torch.adds"], 2, "TPX-0110", "mean aten.add.Tensor or "),
    "near op": (["ops", "aten.geluu"], 2, "TPX-0002", "did you mean aten.gelu.default"),
    "near overload": (["ops", "aten.silu.def"], 2, "TPX-0002", "aten.silu.default?"),
    "no op near": (["ops", "nosuchop"], 2, "TPX-0110", "no model, nor an op"),
    "no model near": (["my.op"], 2, "TPX-0110", "a model is one of"),
    "a model and options": (["resnet50", "-t", "none"], 2, "TPX-0110", "mean zoo:res"),
    "no such command": (["verify", "ARTIFACT"], 2, "TPX-0002", "commands are export, "),
    "over a model": (["MODEL", "-o", "m.py"], 2, "TPX-0002", "name it m.tpuexe"),
    "another kind's ending": (
        ["MODEL", "--target", "litert", "-o", "m.tpuexe"],
        2,
        "TPX-0002",
        "name it m.tflite",
    ),
    "unknown op": (["ops", "aten.nonsense"], 2, "TPX-0002", "aten.gelu"),
    "no such artifact": (["inspect", "nowhere.tpuexe"], 1, "TPX-0402", "path"),
    "not an artifact": (["inspect", "MODEL"], 1, "TPX-0401", "it is no .tpuexe"),
}


@pytest.mark.parametrize("name", USAGE)
def test_command_lines(tpx: Run, model: Path, artifact: Path, name: str) -> None:
    argv, expected, code, words = USAGE[name]
    files = {"MODEL": str(model), "ARTIFACT": str(artifact)}
    status, _, err = tpx(*(files.get(a, a) for a in argv))
    assert status == expected
    assert f"[{code}]" in err
    assert words in err


def test_errors_are_json_on_request(tpx: Run, tmp_path: Path) -> None:
    status, out, err = tpx(tmp_path / "nowhere.py", "--json")
    assert status == 1
    assert json.loads(out)["error"]["code"] == "TPX-0111"
    assert err == ""


PLACES = {
    "no folder": ("cloud-tpu", "nowhere/m.tpuexe", "no such folder"),
    "a folder": ("cloud-tpu", "folder", "folder/model.tpuexe"),
    "a folder for .tflite": ("litert", "folder", "folder/model.tflite"),
    "another's folder": ("stablehlo", "folder", "no result of an earlier export"),
    "a file": ("stablehlo", "model.py", "no result of an earlier export"),
}


@pytest.mark.parametrize("name", PLACES)
def test_output_not_writable(tpx: Run, model: Path, name: str) -> None:
    target, place, words = PLACES[name]
    (model.parent / "folder").mkdir()
    place = str(model.parent / place)
    status, _, err = tpx(model, "--target", target, "-t", "none", "-o", place)
    assert status == 2
    assert "[TPX-0002]" in err
    assert words in err
    assert "capture" not in err  # no work was done


def test_a_folder_of_stablehlo_is_written_again(tpx: Run, model: Path) -> None:
    argv = [model, "--target", "stablehlo", "-t", "none", "-q", "--no-parity"]
    for _ in range(2):
        assert tpx(*argv, "-o", model.parent / "s")[0] == 0


def test_disk_full(model: Path, tmp_path: Path) -> None:
    model.write_text(model.read_text().replace("Linear(4, 3)", "Linear(4, 30_000)"))
    output = tmp_path / "m.tpuexe"
    argv = [sys.executable, "-m", "tpu_export.cli.main", model, "-t", "none"]
    done = subprocess.run(  # no file may grow beyond 200 blocks of 512 or 1024 bytes
        [
            "sh",
            "-c",
            'ulimit -f 200; exec "$@"',
            "sh",
            *argv,
            "-o",
            output,
            "--no-parity",
        ],
        env={**os.environ, "TPU_EXPORT_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "[TPX-0404]" in done.stderr
    assert not output.exists()
    assert list(tmp_path.glob(".*partial")) == []


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[: len(data) // 2], "TPX-0401"),
    "empty": (lambda _: b"", "TPX-0401"),
    "a byte more": (lambda data: data + b"\0", "TPX-0401"),
    "manifest changed": (
        lambda data: data.replace(b'"producers"', b'"producerz"'),
        "TPX-0401",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_artifacts(tpx: Run, artifact: Path, tmp_path: Path, name: str) -> None:
    damage, code = DAMAGE[name]
    path = tmp_path / "damaged.tpuexe"
    path.write_bytes(damage(artifact.read_bytes()))
    for argv in (["inspect", path], ["run", path, "-i", "nowhere.npz"]):
        status, _, err = tpx(*argv)
        assert status == 1
        assert f"[{code}]" in err


INPUTS = {
    "wrong name": ({"z": [[1, 1, 1, 1]] * 2}, 2, "unknown inputs z"),
    "missing name": ({}, 2, "missing inputs x"),
    "wrong shape": ({"x": [[1, 1]]}, 2, "axis"),
    "digits as text": ({"x": [["1", 1, 1, 1]] * 2}, 2, ": x has text values"),
    "not JSON": ("{", 2, "cannot read inputs"),
    "ragged": ({"x": [[1, 2, 3, 4], [1]]}, 2, "x has rows of several lengths"),
    "text": ({"x": "four"}, 2, "cannot read inputs"),
    "no object": ("[1]", 2, "it is a list, not an object"),
    "a number": ("3", 2, "it is a single value, not an object"),
    "nested deep": ("[" * 100_000, 2, "nested too deep"),
    "above float32": ({"x": [[1e39, 1, 1, 1]] * 2}, 2, "1e+39 is outside the range of"),
    "above float64": ('{"x": [[1e400]]}', 2, "1e400 is outside the range of float64"),
    "name twice": ('{"x": [1], "x": [2]}', 2, "the name 'x' is there twice"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_of_run(tpx: Run, artifact: Path, tmp_path: Path, name: str) -> None:
    values, expected, words = INPUTS[name]
    source = tmp_path / "in.json"
    source.write_text(values if isinstance(values, str) else json.dumps(values))
    status, _, err = tpx("run", artifact, "-i", source)
    assert status == expected
    assert words in err


FILES = {
    "garbage.npz": (b"garbage", "it is no .npz file"),
    "garbage.npy": (b"garbage", "it is no .npy file"),
    "cut.npz": (b"PK\3\4", "it is no .npz file"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_another_kind(
    tpx: Run, artifact: Path, tmp_path: Path, name: str
) -> None:
    data, words = FILES[name]
    (tmp_path / name).write_bytes(data)
    status, _, err = tpx("run", artifact, "-i", tmp_path / name)
    assert status == 2
    assert words in err
    assert "pickle" not in err


def test_outputs_without_a_folder(tpx: Run, artifact: Path, tmp_path: Path) -> None:
    argv = ["run", artifact, "-i", "nowhere.npz", "-o", tmp_path / "no" / "z.npz"]
    status, _, err = tpx(*argv)  # before the inputs are read
    assert status == 2
    assert "z.npz: no such folder" in err


def test_outputs_of_another_kind(tpx: Run, artifact: Path, tmp_path: Path) -> None:
    argv = ["run", artifact, "-i", "nowhere.npz", "-o", tmp_path / "z.txt"]
    status, _, err = tpx(*argv)  # before the inputs are read
    assert status == 2
    assert "its ending is not .npz or .json" in err


def test_wrong_dtype_of_run(tpx: Run, artifact: Path, tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "in.npz", x=np.ones((2, 4)))
    status, _, err = tpx("run", artifact, "-i", tmp_path / "in.npz")
    assert status == 2
    assert "[TPX-0505]" in err
    assert "float64, expected float32" in err


def test_interrupted_export_leaves_nothing(model: Path, tmp_path: Path) -> None:
    output = tmp_path / "m.tpuexe"
    child = subprocess.Popen(
        [sys.executable, "-m", "tpu_export.cli.main", str(model), "-o", str(output)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TPU_EXPORT_CACHE": str(tmp_path / "cache")},
    )
    with child:
        assert child.stderr is not None
        for line in child.stderr:
            if line.startswith("lower"):  # the compile has begun
                break
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        rest = child.stderr.read()
    assert child.returncode == 130, rest
    assert "interrupted" in rest
    assert not output.exists()
    assert list(tmp_path.glob(".*partial")) == []


PROJECTS = {
    "a number": "[tool.tpu-export]\nmodel = 3\n",
    "no table": "[tool]\ntpu-export = 3\n",
    "not TOML": "[tool\n",
    "topologies, a number": '[tool.tpu-export]\nmodel = "m.py"\ntopologies = 3\n',
    "no topologies": '[tool.tpu-export]\nmodel = "m.py"\ntopologies = []\n',
    "empty topology": '[tool.tpu-export]\nmodel = "m.py"\ntopologies = ""\n',
    "no tools": "tool = 3\n",
    "topologies": '[tool.tpu-export]\nmodel = "m.py"\ntopologies = [1]\n',
}


@pytest.mark.parametrize("name", PROJECTS)
def test_bad_pyproject(
    tpx: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECTS[name])
    monkeypatch.chdir(tmp_path)
    status, _, err = tpx()
    assert status == 2
    assert "[TPX-0002]" in err
    assert "pyproject.toml" in err


def test_an_internal_error_is_one_line(
    tpx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpu_export.cli import doctor

    def broken() -> None:
        message = "no such thing"
        raise KeyError(message)

    monkeypatch.setattr(doctor, "examine", broken)
    status, _, err = tpx("doctor")
    assert status == 1
    assert "[TPX-0000]: internal error, KeyError at test_bad_input.py" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["export", "ops", "debug"])
@pytest.mark.parametrize("name", ["m.tpuexe", "m.tflite"])
def test_an_artifact_is_no_model(tpx: Run, command: str, name: str) -> None:
    status, _, err = tpx(*([] if command == "export" else [command]), name)
    assert status == 2
    assert "TPX-0110" in err
    assert "not a model" in err
    assert "that it was exported from" in err


def test_a_directory_is_no_model(tpx: Run, model: Path, tmp_path: Path) -> None:
    status, _, err = tpx("ops", tmp_path)
    assert status == 2
    assert f"{tmp_path} is a directory\n  name a model in it: {model}" in err
    model.unlink()
    assert "it holds no model; a model is one of: path.py" in tpx(tmp_path)[2]
    (tmp_path / "config.json").write_text("{}")
    assert f"write hf:{tmp_path}" in tpx(tmp_path)[2]
