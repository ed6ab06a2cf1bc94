"""-v means the same in each command that has it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tpu_export.cli.failures import run_safely
from tpu_export.cli.main import group

Run = Callable[..., tuple[int, str, str]]
LOGGER = logging.getLogger("tpu_export.converters.tpu.workers")
# What each command calls first, and a command line that gets there.
COMMANDS = {
    "export": ("tpu_export.parity.export:export", ["zoo:mlp", "-q"]),
    "run": ("tpu_export.runtime.program:load", ["run", "m.tpuexe", "-i", "in.json"]),
    "parity": ("tpu_export.parity.check:parity", ["parity", "m.tpuexe"]),
    "zoo list": ("tpu_export.model_zoo.zoo:names", ["zoo", "list"]),
    "zoo export": ("tpu_export.model_zoo.zoo:entry", ["zoo", "export", "mlp"]),
}


@pytest.fixture(params=COMMANDS)
def broken(request: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command line whose work logs a line and fails by a fault of ours."""
    target, argv = COMMANDS[request.param]

    def fail(*_: object, **__: object) -> None:
        LOGGER.debug("what the compiler said")
        message = "no such thing"
        raise KeyError(message)

    # By module: `tpu_export.parity` is also the name of a function.
    module, name = target.split(":")
    monkeypatch.setattr(import_module(module), name, fail)
    monkeypatch.delenv("TPU_EXPORT_TRACEBACK", raising=False)
    return argv


def test_quiet_without_it(tpx: Run, broken: list[str]) -> None:
    status, _, err = tpx(*broken)
    assert status == 1
    assert "[TPX-0000]" in err
    assert "Traceback" not in err
    assert "what the compiler said" not in err


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_shows_the_log_and_the_traceback(
    tpx: Run, broken: list[str], option: str
) -> None:
    status, _, err = tpx(*broken, option)
    assert status == 1
    assert "DEBUG tpu_export.converters.tpu.workers: what the compiler said\n" in err
    assert "Traceback" in err
    assert logging.getLogger("tpu_export").handlers == []
    assert "Traceback" not in tpx(*broken)[2]  # it ends with the command


def test_the_environment_asks_for_tracebacks_only(
    tpx: Run, broken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_EXPORT_TRACEBACK", "1")
    _, _, err = tpx(*broken)
    assert "Traceback" in err
    assert "what the compiler said" not in err


def test_a_zoo_model_that_fails_shows_where(
    tpx: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def fail(*_: object, **__: object) -> None:
        message = "no such thing"
        raise KeyError(message)

    monkeypatch.setattr(import_module("tpu_export.parity.export"), "export", fail)
    argv = ["zoo", "export", "mlp", "-o", tmp_path]
    assert "Traceback" not in tpx(*argv)[2]
    status, out, err = tpx(*argv, "-v")
    assert (status, out) == (1, "0 of 2 exports succeeded\n")
    assert err.count("Traceback") == 2


@pytest.mark.parametrize("broken", ["export", "parity", "zoo list"], indirect=True)
def test_json_stays_json(broken: list[str], capfd: Any) -> None:
    assert run_safely(group, [*broken, "--json", "-v"]) == 1
    out, err = capfd.readouterr()
    assert json.loads(out)["error"]["code"] == "TPX-0000"
    assert "Traceback" in err


NOISE = """
import logging, warnings

def get_inputs():
    logging.getLogger("torch._subclasses.fake_tensor").error("a trial failed")
    warnings.warn_explicit("old", FutureWarning, "copyreg.py", 1, module="copyreg")
    warnings.warn_explicit("older", UserWarning, "x.py", 1, module="torch.export.x")
    warnings.warn("of the model", stacklevel=1)
    return (torch.ones(2, 4),)
"""


@pytest.mark.parametrize("argv", [["ops"], ["debug"], ["debug", "-v"]])
def test_torchs_words_about_itself(process: Any, model: Path, argv: list[str]) -> None:
    model.write_text(model.read_text() + NOISE)
    told = process(*argv, model).stderr
    assert "UserWarning: of the model" in told
    for words in ("a trial failed", "FutureWarning: old", "UserWarning: older"):
        assert (words in told) == ("-v" in argv), told
