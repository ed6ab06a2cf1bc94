"""--cpu-engine: a .tpuexe that runs LiteRT's form on a CPU, and XLA where that cannot be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tpu_export as tx
from tpu_export.parity import cpu_engines
from tpu_export.runtime.errors import TpuExportError
from tpu_export.runtime.executables import NoExecutableError
from tpu_export.runtime.litert import UnknownCpuEngineError
from tpu_export.runtime.manifest import CpuEngine


class Streaming(torch.nn.Module):
    """A convolution over a window that is kept between calls, written to from an input."""

    window: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.zeros(2, 3, 8))
        self.conv = torch.nn.Conv1d(3, 4, 3)

    def forward(self, x: torch.Tensor, total: torch.Tensor) -> dict[str, torch.Tensor]:
        self.window.copy_(torch.cat((self.window[:, :, 1:], x[..., None]), -1))
        total.add_(x.sum())
        return {"y": self.conv(self.window), "n": total.long()}


class Dynamic(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x), -1)


def exported(path: Path, model: torch.nn.Module, args: Any, **options: Any) -> Any:
    options = {"topologies": (), "output": path, **options}
    return tx.export(model.eval(), args, **options)


@pytest.fixture(scope="module")
def streaming(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    path = tmp_path_factory.mktemp("engines") / "streaming.tpuexe"
    torch.manual_seed(0)
    args = (torch.randn(2, 3), torch.zeros(()))
    return path, exported(path, Streaming(), args, cpu_engine="litert")


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engines") / "dynamic.tpuexe"
    torch.manual_seed(0)
    exported(
        path, Dynamic(), (torch.randn(2, 6),), cpu_engine="litert", buckets={"batch": [2, 5]},
        dynamic_shapes={"x": {0: torch.export.Dim("batch", min=1, max=16)}},
    )  # fmt: skip
    return path


def test_both_engines_are_proven(streaming: tuple[Path, Any]) -> None:
    rungs = {row.rung for row in streaming[1].parity.rows}
    assert rungs == {"tpuexe on cpu", "tpuexe on cpu in LiteRT"}
    assert any("LiteRT takes" in note for note in streaming[1].notes)


@pytest.mark.parametrize(
    ("engine", "origin"), [("auto", "LiteRT form"), ("xla", "executable")]
)
def test_state_and_written_inputs(
    streaming: tuple[Path, Any], engine: Any, origin: str
) -> None:
    model = Streaming().eval()
    with tx.load(streaming[0], device="cpu", cpu_engine=engine) as program:
        weights = {
            n: np.array(program._weights[f"conv.{n}"]) for n in ("weight", "bias")
        }
        model.conv.load_state_dict({n: torch.from_numpy(w) for n, w in weights.items()})
        for start in (0, 1):
            program.reset_state()
            model.window.zero_()
            total, expected = np.zeros((), np.float32), torch.zeros(())
            for step in range(6):
                x = torch.randn(
                    2, 3, generator=torch.Generator().manual_seed(step + start)
                )
                want = model(x, expected)
                got = program(x.numpy(), total)
                np.testing.assert_allclose(
                    got["y"], want["y"].detach(), rtol=1e-4, atol=1e-5
                )
                assert got["n"].dtype == np.int64
                np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-5)
            window = program.state["window"]
            np.testing.assert_array_equal(window, model.window)
        assert program.origin["forward"].startswith(origin)
        assert program.compilations == 0


def test_each_bucket_has_a_form_and_other_sizes_run_in_xla(dynamic: Path) -> None:
    with tx.load(dynamic, device="cpu") as program:
        for batch, origin in ((2, "LiteRT form"), (5, "LiteRT form"), (3, "compiled")):
            y = program(np.ones((batch, 6), np.float32))
            np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-5)
            assert program.origin["forward"].startswith(origin), batch
        assert "LiteRT forms are for batch=2, batch=5" in program.origin["forward"]
    with (
        tx.load(dynamic, device="cpu", cpu_engine="litert") as program,
        pytest.raises(NoExecutableError, match="LiteRT forms are for batch=2, batch=5"),
    ):
        program(np.ones((3, 6), np.float32))


def test_new_weights_run_in_xla(dynamic: Path) -> None:
    x = np.ones((2, 6), np.float32)
    with tx.load(dynamic, device="cpu") as program:
        before = program(x)
        program.update_weights({"linear.weight": np.zeros((5, 6), np.float32)})
        after = program(x)
        assert "weights of before the update" in program.origin["forward"]
    assert np.abs(after - before).max() > 1e-3


def test_without_the_package_xla_runs(
    dynamic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda n: None if n == "ai_edge_litert" else find(n),
    )
    with tx.load(dynamic, device="cpu") as program:
        program(np.ones((2, 6), np.float32))
        assert "ai-edge-litert, which is not installed" in program.origin["forward"]
    with pytest.raises(NoExecutableError, match="not installed"):
        tx.load(dynamic, device="cpu", cpu_engine="litert")


def test_never_runs_nothing_of_the_file_but_stablehlo(dynamic: Path) -> None:
    with tx.load(dynamic, device="cpu", executables="never") as program:
        program(np.ones((2, 6), np.float32))
        assert program.origin["forward"].startswith("compiled from StableHLO")


def test_auto_takes_the_faster_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"litert": 9, "xla": 5}
    monkeypatch.setattr(cpu_engines, "_times", lambda path, cases: iter([times]))
    path = tmp_path / "m.tpuexe"
    result = exported(path, Dynamic(), (torch.randn(2, 6),), cpu_engine="auto")
    assert any("xla runs on a CPU" in note for note in result.notes)
    artifact = tx.load(path, device="cpu")._artifact
    assert artifact is not None
    (engine,) = artifact.manifest.cpu_engines
    assert (engine.engine, engine.main, engine.microseconds) == ("xla", None, times)
    assert isinstance(engine, CpuEngine)
    assert not [name for name in artifact.names if name.startswith("litert/")]


def test_auto_says_why_litert_cannot(tmp_path: Path) -> None:
    path = tmp_path / "m.tpuexe"
    model = Dynamic().double()
    args = (torch.randn(2, 6, dtype=torch.float64),)
    result = exported(path, model, args, cpu_engine="auto")
    assert any("LiteRT cannot" in n and "float64" in n for n in result.notes)
    with pytest.raises(TpuExportError, match="float64"):
        exported(tmp_path / "n.tpuexe", model, args, cpu_engine="litert")
    assert not (tmp_path / "n.tpuexe").exists()


def test_unknown_engines_are_refused(dynamic: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownCpuEngineError, match="onnx"):
        tx.load(dynamic, device="cpu", cpu_engine="onnx")  # type: ignore[arg-type]
    for options in ({"cpu_engine": "onnx"}, {"cpu_engine": "auto", "target": "litert"}):
        with pytest.raises(UnknownCpuEngineError):
            exported(tmp_path / "m", Dynamic(), (torch.randn(2, 6),), **options)
