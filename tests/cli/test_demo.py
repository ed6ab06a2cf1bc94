"""When the demo's serving process fails, what it said is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tpu_export.cli import demo


def test_serve(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The demo's model has one result; this artifact has two by name.
    one = demo.SERVE.replace("np.load(sys.argv[2]))", "np.load(sys.argv[2]))['n']")
    monkeypatch.setattr(demo, "SERVE", one)
    logits, how = demo.serve(artifact, np.ones((2, 4), np.float32))
    assert logits.tolist() == [4, 4]
    assert how.startswith("cpu | executable cpu/host")


def test_a_failure_shows_what_the_process_said(tmp_path: Path, capfd: Any) -> None:
    path = tmp_path / "damaged.tpuexe"
    path.write_bytes(b"damaged")
    with pytest.raises(demo.ServeError, match="exit status 1: ") as caught:
        demo.serve(path, np.ones(2, np.float32))
    err = capfd.readouterr().err
    assert "Traceback" in err
    assert "TPX-0401" in err
    assert caught.value.message.split(": ", 1)[1] in err


def test_a_signal_is_named(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(demo, "SERVE", code)
    with pytest.raises(demo.ServeError, match="signal 9: it wrote nothing"):
        demo.serve(artifact, np.ones(2, np.float32))
