"""--bucket: from one dynamic model to executables of chosen sizes, proven and listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpu_export.cli.buckets import buckets
from tpu_export.cli.failures import UsageError
from tpu_export.runtime.artifact import Artifact
from tpu_export.runtime.program import load

Run = Callable[..., tuple[int, str, str]]
SHAPES = """
def get_dynamic_shapes():
    from torch.export import Dim
    return {"x": {0: Dim("batch", max=64)}}
"""


@pytest.fixture
def dynamic(model: Path) -> Path:
    model.write_text(model.read_text() + SHAPES)
    return model


def test_each_bucket_is_compiled_proven_and_listed(tpx: Run, dynamic: Path) -> None:
    path = dynamic.parent / "m.tpuexe"
    status, out, _ = tpx(
        dynamic, "-t", "none", "--bucket", "batch=1,8", "-o", path, "--json"
    )
    found = json.loads(out)
    assert status == 0
    inputs = {row["inputs"] for row in found["parity"]["rows"]}
    assert inputs == {"example", "seed 1", "batch=1", "batch=8", "batch=0"}
    assert found["parity"]["passed"]
    assert (
        "forward: executables cpu/host for 2 sets of sizes: batch=1, batch=8"
        in (found["notes"])
    )
    sizes = [dict(x.dims) for x in Artifact(path).manifest.executables]
    assert sizes == [{"batch": 1}, {"batch": 8}]
    program = load(path, device="cpu")
    for batch in (8, 1):
        program(np.ones((batch, 4), np.float32))
    assert program.compilations == 0

    status, out, _ = tpx("inspect", path)
    assert "buckets: batch=1, batch=8" in out
    status, out, _ = tpx("inspect", path, "--json")
    assert json.loads(out)["buckets"] == {"forward": [{"batch": 1}, {"batch": 8}]}

    status, out, _ = tpx("parity", dynamic, "--artifact", path)
    assert status == 0
    assert "batch=8" in out


def test_estimates_say_their_sizes(tpx: Run, dynamic: Path) -> None:
    path = dynamic.parent / "m.tpuexe"
    argv = (dynamic, "-t", "v5e-1", "--bucket", "batch=1,8", "-o", path)
    status, out, _ = tpx(*argv)
    assert status == 0
    assert "v5e:1x1 batch=1 " in out
    assert "v5e:1x1 batch=8 " in out
    _, out, _ = tpx(*argv, "--json")
    estimates = json.loads(out)["estimates"]
    assert [e["dims"] for e in estimates] == [{"batch": 1}, {"batch": 8}]


def test_buckets_of_pyproject(
    tpx: Run, dynamic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (dynamic.parent / "pyproject.toml").write_text(
        '[tool.tpu-export]\nmodel = "model.py"\ntopologies = ["none"]\n'
        "buckets = { batch = [2, 4] }\n"
    )
    monkeypatch.chdir(dynamic.parent)
    assert tpx("-q", "-o", "m.tpuexe")[0] == 0
    sizes = [x.dims for x in Artifact(Path("m.tpuexe")).manifest.executables]
    assert sizes == [{"batch": 2}, {"batch": 4}]


@pytest.mark.parametrize(
    ("given", "settings", "found"),
    [
        (["batch=1,8"], {}, {"batch": [1, 8]}),
        (["batch = 1, 8 ", "seq=128"], {}, {"batch": [1, 8], "seq": [128]}),
        (["batch=1", "batch=8"], {"buckets": {"seq": [1]}}, {"batch": [1, 8]}),
        ([], {"buckets": {"seq": 1, "batch": [2]}}, {"seq": [1], "batch": [2]}),
        ([], {}, {}),
    ],
)
def test_buckets(given: list[str], settings: Any, found: Any) -> None:
    assert buckets(given, settings) == found


def test_buckets_of_pyproject_are_a_table() -> None:
    with pytest.raises(UsageError, match="no table"):
        buckets([], {"buckets": [1]})


def test_a_bucket_that_computes_something_else_is_left_out(
    tpx: Run, dynamic: Path
) -> None:
    """torch traces as if no size were 1, and takes the branch of larger ones."""
    forward = 'return {"y": self.fc(x), "n": x.sum(-1)}'
    text = dynamic.read_text()
    assert forward in text
    branch = f"if x.shape[0] == 1:\n            x = x * 2\n        {forward}"
    dynamic.write_text(text.replace(forward, branch))
    path = dynamic.parent / "m.tpuexe"
    status, out, _ = tpx(dynamic, "-t", "none", "--bucket", "batch=1,8", "-o", path)
    assert status == 0
    assert "no executable for batch=1: the model was captured for batch != 1" in out
    assert [dict(x.dims) for x in Artifact(path).manifest.executables] == [{"batch": 8}]
    status, _, err = tpx(dynamic, "-t", "none", "--bucket", "batch=1", "-o", path)
    assert status == 2
    assert "error[TPX-0307]" in err
