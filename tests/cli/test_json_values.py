"""What is printed is JSON also where numbers are not finite."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpu_export.cli.json_values import json_text, numbers

Run = Callable[..., tuple[int, str, str]]
NAN, INF = float("nan"), float("inf")


def strict(text: str) -> Any:
    """Read JSON as any other language does: NaN and Infinity are no numbers."""

    def refuse(name: str) -> None:
        pytest.fail(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NAN, "NaN"),
        ([INF, -INF, 1.5], ["Infinity", "-Infinity", 1.5]),
        ({"a": ({"b": np.float64(INF)},)}, {"a": [{"b": "Infinity"}]}),
        ({"nan": 1, "inf": True, "x": None}, {"nan": 1, "inf": True, "x": None}),
    ],
)
def test_numbers_that_json_lacks(value: object, expected: object) -> None:
    assert strict(json_text(value)) == expected


def test_names_become_numbers_again() -> None:
    assert numbers([["Infinity", 1], "-Infinity", "four"]) == [[INF, 1], -INF, "four"]
    assert np.isnan(numbers("NaN"))


@pytest.mark.parametrize("to_file", [False, True])
def test_run(tpx: Run, artifact: Path, tmp_path: Path, to_file: bool) -> None:
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(json.dumps({"x": [["NaN", 1, 1, 1], [1, "-Infinity", 1, 1]]}))
    argv = ["run", artifact, "-i", source, *(["-o", target] if to_file else [])]
    status, out, _ = tpx(*argv)
    assert status == 0
    found = strict(target.read_text() if to_file else out)
    assert found["n"] == ["NaN", "-Infinity"]
    assert found["y"][0] == ["NaN"] * 3
    assert {"Infinity", "-Infinity"} >= set(found["y"][1])


def test_export_and_parity(tpx: Run, model: Path, artifact: Path) -> None:
    model.write_text(model.read_text().replace("Linear(4, 3)", "Linear(4, 5)"))
    status, out, _ = tpx("parity", model, "--artifact", artifact, "--json")
    assert status == 1
    rows = {row["output"]: row for row in strict(out)["rows"]}
    assert rows["y"]["max_rel"] == "Infinity"
    assert rows["n"]["max_rel"] < 1
    output = model.parent / "m.tpuexe"
    status, out, _ = tpx(model, "-t", "none", "-o", output, "--json", "--no-parity")
    assert (status, strict(out)["parity"]) == (0, None)


COMPLEX = """
import torch

def get_model():
    return lambda x: torch.complex(x, x)

def get_inputs():
    return (torch.ones(2),)
"""


def test_complex_numbers_have_no_form(tpx: Run, tmp_path: Path) -> None:
    (tmp_path / "c.py").write_text(COMPLEX)
    built, source = tmp_path / "c.tpuexe", tmp_path / "in.json"
    assert tpx(tmp_path / "c.py", "-t", "none", "-o", built, "-q")[0] == 0
    source.write_text('{"x": [1, "NaN"]}')
    for target in ("-", tmp_path / "out.json"):
        status, _, err = tpx("run", built, "-i", source, "-o", target)
        assert status == 2
        assert "no complex numbers" in err
    assert tpx("run", built, "-i", source, "-o", tmp_path / "out.npz")[0] == 0
