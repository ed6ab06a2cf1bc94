"""One body for small functions: export to LiteRT, run in both engines, compare with torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tpu_export.converters.litert import LiteRtModel, convert
from tpu_export.converters.stablehlo.arrays import as_numpy
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


@pytest.fixture
def right_in_both() -> Callable[..., LiteRtModel]:
    """right_in_both(function, *inputs): what each engine gives is what torch gives."""

    def body(
        function: Callable[..., Any], *inputs: torch.Tensor, rtol: float = 1e-4
    ) -> LiteRtModel:
        module = Function(function).eval()
        program = lower(capture(module, inputs, {}), target="litert").program
        model = convert({"forward": program})
        signature = model.signatures["forward"]
        feeds = {
            s.name: as_numpy(x) for s, x in zip(signature.inputs, inputs, strict=True)
        }
        with torch.no_grad():
            results = module(*inputs)
        wanted = (results,) if isinstance(results, torch.Tensor) else tuple(results)
        for engine in ("interpreter", "compiled"):
            found = model.run(engine=engine, **feeds)
            for i, (spec, want) in enumerate(
                zip(signature.outputs, wanted, strict=True)
            ):
                where = f"result {i} in {engine}"
                check(found[spec.name], as_numpy(want), where, rtol)
        return model

    return body


def check(got: Any, want: Any, where: str, rtol: float) -> None:
    assert got.dtype == want.dtype, where
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol, rtol / 10, err_msg=where)
    else:
        np.testing.assert_array_equal(got, want, err_msg=where)
