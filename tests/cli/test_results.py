"""With --json, standard output is one JSON value, whatever the model file prints."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PRINTS = """
import os, sys
print("printed")
sys.__stdout__.write("written past sys.stdout")
os.write(1, b"by descriptor")
os.system("echo by a child")
"""


@pytest.mark.parametrize("argv", [["ops"], ["export", "-t", "none", "--no-parity"]])
def test_prints_of_the_model_file(
    process: Callable[..., subprocess.CompletedProcess[str]],
    model: Path,
    argv: list[str],
) -> None:
    model.write_text(model.read_text() + PRINTS)
    done = process(*argv, model, "--json", cwd=model.parent)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    for words in ("printed", "past sys.stdout", "by descriptor", "by a child"):
        assert words in done.stderr


def test_an_error_after_prints(
    process: Callable[..., subprocess.CompletedProcess[str]], model: Path
) -> None:
    model.write_text(PRINTS)
    done = process(model, "--json")
    assert json.loads(done.stdout)["error"]["code"] == "TPX-0113"
