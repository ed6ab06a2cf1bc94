"""squeeze() on a dynamic axis: no artifact has a result of one axis less at size 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.refusals import DimRangeError
from tpu_export.runtime.inputs import InputError
from tpu_export.runtime.program import load

X = torch.ones(4, 1, 6)


@pytest.mark.parametrize(
    ("model", "constraints"),
    [
        (lambda x: x.squeeze() * 2, ("b != 1",)),
        (lambda x: x.squeeze(0), ("b != 1",)),
        (lambda x: x.squeeze((0, 1)), ("b != 1",)),
        (lambda x: x.squeeze(-2), ()),
        (lambda x: x.mean(0, keepdim=True).squeeze(0), ()),
        (lambda x: torch.cat([x, x]).squeeze(), ()),
    ],
)
def test_what_must_not_be_1(
    model: Callable[..., Any], constraints: tuple[str, ...]
) -> None:
    captured = capture(model, (X,), dynamic_shapes=({0: Dim("b", max=64)},))
    assert captured.signature.constraints == constraints


def test_a_call_of_size_1_is_refused(tmp_path: Path) -> None:
    captured = capture(
        lambda x: x.squeeze() * 2, (X,), dynamic_shapes=({0: Dim("b", max=64)},)
    )
    program = load(captured.lower().save(tmp_path / "m.tpuexe"), device="cpu")
    assert program(np.ones((3, 1, 6), "f4")).shape == (3, 6)
    with pytest.raises(InputError, match="captured for b != 1, given b = 1"):
        program(np.ones((1, 1, 6), "f4"))


class Squeezed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze() * 2


def test_a_promised_size_of_1_is_refused_at_once() -> None:
    dynamic = ({0: Dim("b", min=1, max=64)},)
    with pytest.raises(DimRangeError, match=r"test_dropped_axes.py:\d+ drops an axis"):
        capture(Squeezed(), (X,), dynamic_shapes=dynamic)
    capture(lambda x: x.squeeze(1), (X,), dynamic_shapes=dynamic)
