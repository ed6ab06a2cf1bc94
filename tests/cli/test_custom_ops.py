"""The model file of docs/custom-ops.md, pasted and exported."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
PAGE = Path(__file__).parents[2] / "docs" / "custom-ops.md"


@pytest.fixture
def pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TPU_EXPORT_CACHE", str(tmp_path / "cache"))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "model.py"
    path.write_text("\n\n".join(blocks))
    return path


def test_the_page_is_true(tpx: Run, pasted: Path) -> None:
    output = pasted.parent / "model.tpuexe"
    status, out, err = tpx(pasted, "-t", "v5e-1", "-o", output, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["parity"]["passed"] is True
    assert [e["topology"] for e in found["estimates"]] == ["v5e:1x1"]
    assert "the proof is about the general rules" in found["notes"][0]
    status, out, _ = tpx("inspect", output, "--json")
    assert "programs/forward.tpu.mlirbc" in out


def test_an_error_in_a_rule_names_the_line(tpx: Run, pasted: Path) -> None:
    text = pasted.read_text().replace("jax.nn.softmax(x", "jax.nn.softmx(x")
    pasted.write_text(text)
    line = next(i for i, t in enumerate(text.splitlines(), 1) if "softmx" in t)
    status, _, err = tpx(pasted, "-t", "none", "-o", pasted.parent / "m.tpuexe")
    assert status == 1
    assert "error[TPX-0204]: your rule for my.row_softmax.default" in err
    assert f"raised in line {line} AttributeError: " in err


def test_a_model_without_the_rule_says_what_to_write(tpx: Run, pasted: Path) -> None:
    text = re.sub(r"(?ms)^@tpu_export.lowers.*?^\n", "", pasted.read_text())
    pasted.write_text(text)
    status, _, err = tpx(pasted, "-t", "none", "-o", pasted.parent / "m.tpuexe")
    assert status == 1
    assert (
        "no lowering rule for 1 op(s) for TPU and CPU: my.row_softmax.default x1" in err
    )
    assert "@tpu_export.lowers(torch.ops…) in your model file" in err


REGISTRATIONS = {
    "a second rule": (
        "torch.ops.my.row_softmax.default",
        "has a rule already: row_softm",
    ),
    "a packet": ("torch.ops.my.row_softmax", "is a packet of them, at model.py:{line}"),
    "a name": ("'my::row_softmax'", "not 'my::row_softmax', at model.py:{line}"),
    "nothing": ("", "names no op, at model.py:{line}"),
    "a platform": ("row_softmax, platform='gpu'", "is no platform, at model.py:{line}"),
}


@pytest.mark.parametrize("name", REGISTRATIONS)
def test_a_rule_that_cannot_be_registered(tpx: Run, pasted: Path, name: str) -> None:
    what, words = REGISTRATIONS[name]
    text = pasted.read_text()
    pasted.write_text(
        f"{text}\n@tpu_export.lowers({what})\ndef rule(x):\n    return x\n"
    )
    line = len(text.splitlines()) + 2
    status, _, err = tpx("ops", pasted)
    assert status == 1
    assert err.startswith("error[TPX-0207]: ")
    assert words.format(line=line) in err
    assert f"model.py:{line}" in err


def test_a_rule_that_exits_is_one_that_raises(tpx: Run, pasted: Path) -> None:
    whole = "return jax.nn.softmax(x, axis=-1)"
    pasted.write_text(pasted.read_text().replace(whole, "raise SystemExit(3)"))
    status, out, _ = tpx(pasted, "-t", "none", "-o", pasted.parent / "m", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (1, "TPX-0204")
    status, out, _ = tpx("debug", pasted, "--json")
    assert (status, json.loads(out)["counts"]) == (1, {"ok": 1, "failed": 1})


def test_loading_a_model_file_again_is_no_second_rule(tpx: Run, pasted: Path) -> None:
    for _ in range(2):
        assert tpx("ops", pasted)[0] == 0
    pasted.write_text("# edited\n" + pasted.read_text())
    assert tpx("ops", pasted)[0] == 0


def test_a_rule_of_the_model_file_is_shown_as_such(tpx: Run, pasted: Path) -> None:
    _, out, _ = tpx("ops", pasted)
    (line,) = [x for x in out.splitlines() if x.startswith("my.row_softmax.default")]
    assert re.search(r"  yours: \w+ at model.py:\d+  ", line)
    assert json.loads(tpx("ops", pasted, "--json")[1])[0].keys() >= {"own", "status"}
