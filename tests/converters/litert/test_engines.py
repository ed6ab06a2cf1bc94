"""Many calls in one start of an engine; what carries over; what goes wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert import LiteRtModel, engines
from tpu_export.converters.litert.engines import ENGINES, Calls, Engine, run_calls
from tpu_export.converters.litert.errors import (
    LiteRtMismatchError,
    LiteRtUnloadableError,
)
from tpu_export.converters.litert.exchange import map_arrays, write_arrays
from tpu_export.converters.litert.trial import Candidate, Trial
from tpu_export.parity.export import ParityFailedError, export
from tpu_export.parity.litert import to_litert


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x
        return self.total * 2


@pytest.fixture(scope="module")
def counter() -> LiteRtModel:
    return to_litert(Counter(), (torch.ones(3),))


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The engines that were started, in order."""
    started = []
    run = engines.run_module

    def recorded(module: str, *argv: str) -> tuple[int, str]:
        started.append(argv[1])
        return run(module, *argv)

    monkeypatch.setattr(engines, "run_module", recorded)
    return started


def steps(values: Sequence[float], carried: Sequence[str]) -> Calls:
    inputs: list[dict[str, Any]] = [{"x": np.full(3, v, np.float32)} for v in values]
    inputs[0]["state.total"] = np.zeros(3, np.float32)
    return Calls("forward", inputs, carried)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_start_for_all_calls(
    counter: LiteRtModel, engine: Engine, starts: list[str]
) -> None:
    sequences = [steps((1, 2, 3), ["state.total"]), steps((5,), [])]
    first, second = run_calls(counter.path, engine, sequences)
    assert starts == [engine]
    assert [call["output_0"][0] for call in first] == [2, 6, 12]
    assert second[0]["state.total"].tolist() == [5, 5, 5]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_input_is_an_error(counter: LiteRtModel, engine: Engine) -> None:
    with pytest.raises(LiteRtUnloadableError, match=f"{engine} cannot run .*'forward'"):
        run_calls(counter.path, engine, [steps((1, 2), [])])  # no state for the second


def test_an_export_starts_no_engine_more_than_it_needs(
    tmp_path: Path, starts: list[str]
) -> None:
    proof = ["interpreter", "compiled"]
    finished = ["interpreter", *proof]  # without the metadata, then the file with it
    path = tmp_path / "m.tflite"
    result = export(Counter(), (torch.ones(3),), target="litert", output=path)
    assert starts == proof + finished
    assert result.parity is not None
    origins = {row.inputs for row in result.parity.rows}
    assert origins == {"example", "seed 1", "after all calls"}
    export(Counter(), (torch.ones(3),), target="litert", output=path, parity=False)
    assert starts == (proof + finished) * 2  # the trials are not left out


def test_a_wrong_state_fails_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def off(*args: Any) -> list[list[dict[str, Any]]]:
        found = run_calls(*args)
        found[-1][-1]["state.total"] += 1
        return found

    monkeypatch.setattr("tpu_export.converters.litert.trial.run_calls", off)
    with pytest.raises(ParityFailedError, match=r"state\.total"):
        export(Counter(), (torch.ones(3),), target="litert", output=tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "expected",
    [np.zeros(3, np.float32), np.ones(2, np.float32), np.full(3, 2.0)],
    ids=["values", "shape", "dtype"],
)
def test_a_trial_that_differs_is_an_error(counter: LiteRtModel, expected: Any) -> None:
    trial = Trial(steps((1,), []), {"output_0": expected})
    with pytest.raises(LiteRtMismatchError, match="'output_0' of 'forward' in LiteRT"):
        Candidate(counter, [trial]).checked()


def test_arrays_survive_the_exchange(tmp_path: Path) -> None:
    arrays = {
        "file": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "a/b": np.float32(3).reshape(()),
        "": np.zeros((0, 4), np.uint8),
        "ß": np.array([True, False]),
    }
    write_arrays(tmp_path / "new", arrays)
    found = map_arrays(tmp_path / "new")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].flags.c_contiguous
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("module", "needs"),
    [
        ("worker", set()),
        ("engine", set()),
        ("race", set()),
        ("delegates_worker", set()),
        ("quantize_worker", {"ml_dtypes"}),  # of ai-edge-quantizer
    ],
)
def test_workers_start_light(module: str, needs: set[str]) -> None:
    heavy = {"jax", "torch", "ml_dtypes"} - needs
    program = (
        f"import sys, tpu_export.converters.litert.{module}, ai_edge_litert.interpreter; "
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
