"""What torch eager cannot run is the model's own error, not ours."""

from __future__ import annotations

import pytest
import torch

from tpu_export.parity.check import parity
from tpu_export.parity.eager import EagerFailedError


def test_a_model_that_refuses_the_second_inputs() -> None:
    def spread(x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        return x.repeat_interleave(times, 0, output_size=8)

    inputs = (torch.randn(4, 2), torch.tensor([2, 2, 1, 3]))
    message = r"'forward' .*\(seed 1\): RuntimeError: allocated size"
    with pytest.raises(EagerFailedError, match=message):
        parity(spread, inputs)
