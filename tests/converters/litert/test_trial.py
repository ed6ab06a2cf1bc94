"""The trial shows what a converter gets wrong: its inputs are no zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert import convert
from tpu_export.converters.litert.engines import run_calls
from tpu_export.converters.litert.errors import LiteRtMismatchError, LiteRtNanError
from tpu_export.converters.litert.trial import close, draw
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.litert import to_litert
from tpu_export.runtime.signature import Slot


@pytest.mark.parametrize(
    "dtype", ["float32", "int64", "int32", "int8", "uint8", "bool"]
)
def test_draws_are_seeded_and_no_zeros(dtype: str) -> None:
    slot = Slot("input", "x", (4, 50), dtype)
    x, y = (draw(slot, np.random.default_rng(0)) for _ in range(2))
    assert x.shape == (4, 50)
    assert x.dtype.name == dtype
    np.testing.assert_array_equal(x, y)
    kinds = len(np.unique(x))
    assert kinds == 2 if x.dtype.kind != "f" else kinds > 100


def odd(factor: int) -> Any:
    """Return run_calls of an engine that multiplies all results."""

    def wrong(*args: Any) -> list[list[dict[str, Any]]]:
        return [
            [{k: (v * factor).astype(v.dtype) for k, v in call.items()} for call in s]
            for s in run_calls(*args)
        ]

    return wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int8])
def test_what_zeros_would_hide_is_found(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    example = torch.zeros(2, 3, dtype=dtype)
    program = lower(capture(nn.Identity(), (example,), {}), target="litert").program
    monkeypatch.setattr("tpu_export.converters.litert.trial.run_calls", odd(1))
    convert({"forward": program})
    monkeypatch.setattr("tpu_export.converters.litert.trial.run_calls", odd(3))
    with pytest.raises(LiteRtMismatchError, match="differs from XLA"):
        convert({"forward": program})


@pytest.mark.parametrize(
    ("x", "error"),
    [
        ([1.0, float("nan"), 3.0], LiteRtNanError),
        ([1.0, -1.0, 3.0], LiteRtMismatchError),
    ],
)
def test_nan_that_is_lost_is_told(x: list[float], error: type[Exception]) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sqrt().argmax(0)

    inputs = (torch.tensor(x),)
    program = lower(capture(Model(), inputs, {}), target="litert").program
    feeds = {"forward": {"x": inputs[0].numpy()}}
    with pytest.raises(error, match=r"differs from XLA.*\s.*NaN"):
        convert({"forward": program}, inputs=feeds)


def test_integers_stay_within_the_example() -> None:
    """Index 1 would be outside of the table: XLA clamps it, LiteRT refuses."""

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(1, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids)

    model = to_litert(Table(), (torch.zeros(2, 8, dtype=torch.int64),))
    assert model.run(ids=np.zeros((2, 8), np.int64))["output_0"].shape == (2, 8, 4)


def test_close_takes_rounding_and_nothing_else() -> None:
    x = np.array([1.0, -2, np.nan, np.inf, 0], np.float32)
    assert close(x * np.float32(1.0001), x)
    assert not close(np.array([1.0, -2, np.nan, np.inf, 0.1], np.float32), x)
    assert not close(np.array([1.0, -2, np.nan, -np.inf, 0], np.float32), x)
    assert not close(np.array([1.0, -2, 0, np.inf, 0], np.float32), x)
    assert not close(np.array([2, 3]), np.array([2, 4]))
