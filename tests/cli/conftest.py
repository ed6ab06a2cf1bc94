"""Tiny models on disk, and the command line run in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tpu_export.cli.failures import run_safely
from tpu_export.cli.main import group

MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x, scale=None):
        return {"y": self.fc(x), "n": x.sum(-1)}

def get_model():
    torch.manual_seed(0)
    return Model().eval()

def get_inputs():
    return (torch.ones(2, 4),)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    (folder / "model.py").write_text(MODEL)
    output = folder / "m.tpuexe"
    argv = [str(folder / "model.py"), "-t", "none", "-o", str(output), "-q"]
    assert run_safely(group, argv) == 0
    return output


@pytest.fixture
def tpx(capfd: Any) -> Callable[..., tuple[int, str, str]]:
    """tpx(*argv) -> exit status, stdout, stderr."""

    def run(*argv: object) -> tuple[int, str, str]:
        status = run_safely(group, [str(a) for a in argv])
        out, err = capfd.readouterr()
        return status, out, err

    return run


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """process(code_or_argv…): the real command in a process of its own."""

    def run(*argv: object, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tpu_export.cli.main", *map(str, argv)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, **options
        )

    return run
