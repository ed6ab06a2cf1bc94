from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tpu_export.runtime.program import load

Make = Callable[..., Path]


def test_arguments_may_be_positional_or_named(artifact: Make) -> None:
    program = load(artifact("add"), device="cpu")
    x, y = np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)
    for got in (program(x, y), program(y=y, x=x), program(x, y=y)):
        np.testing.assert_array_equal(got, x - y)
    assert program.device == "cpu"


def test_every_model_loads(artifact: Make) -> None:
    for name in ("add", "linear", "counter", "dynamic", "mutating", "two", "random"):
        load(artifact(name), device="cpu").close()
