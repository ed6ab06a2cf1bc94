"""What a model's own rounding leaves unknown of its outputs, for each op that rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers quantized_decomposed
from torch import Tensor, nn

from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower
from tpu_export.parity.references import reference
from tpu_export.parity.samples import Samples

q = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)
STEPS = torch.tensor([0.02, 0.04, 0.08, 0.01])
ZEROS = torch.zeros(4, dtype=torch.int64)


def per_tensor(x: Tensor) -> Tensor:
    n = q.quantize_per_tensor.default(x, 0.04, 0, *INT8)
    return q.dequantize_per_tensor.default(n, 0.04, 0, *INT8)


def per_channel(x: Tensor) -> Tensor:
    n = q.quantize_per_channel.default(x, STEPS, ZEROS, 1, *INT8)
    return q.dequantize_per_channel.default(n, STEPS, ZEROS, 1, *INT8)


def per_token(x: Tensor) -> Tensor:
    scales = STEPS[:3, None]
    n = q.quantize_per_token.default(x, scales, ZEROS[:3, None], *INT8)
    zeros = ZEROS[:3, None]
    return q.dequantize_per_token.default(n, scales, zeros, *INT8, torch.float32)


def per_group(x: Tensor) -> Tensor:
    grid = (STEPS[:2].expand(3, 2), torch.zeros(3, 2), *INT8, 2)
    n = q.quantize_per_channel_group.default(x, *grid)
    return q.dequantize_per_channel_group.default(n, *grid, torch.float32)


def fake(x: Tensor) -> Tensor:
    return torch.fake_quantize_per_tensor_affine(x, 0.04, 0, -128, 127)


def fake_per_channel(x: Tensor) -> Tensor:
    zeros = ZEROS.to(torch.int32)
    return torch.fake_quantize_per_channel_affine(x, STEPS, zeros, 1, -128, 127)


def of_blocks(x: Tensor) -> Tensor:
    ao = torchao()
    grid = ((1, 2), STEPS[:2].expand(3, 2), torch.zeros(3, 2, dtype=torch.int8))
    n = ao.quantize_affine(x, *grid, torch.int8)
    y: Tensor = ao.dequantize_affine(n, *grid, torch.int8)
    return y


def of_float8(x: Tensor) -> Tensor:
    ao, scale = torchao(), torch.tensor([[0.5], [1.0], [2.0]])
    n = ao.quantize_affine_float8_non_decomposed(x, scale)
    y: Tensor = ao.dequantize_affine_float8_non_decomposed(n, scale)
    return y


def torchao() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torchao.quantization.quant_primitives as _  # noqa: F401
    return torch.ops.torchao


class Fn(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def limits(function: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, float]:
    captured = capture(Fn(function), (x,), {})
    program = lower(captured, target="xla").program
    samples = Samples(1, None).of(captured)
    return dict(reference(captured, program, samples).limits)


KINDS = [
    per_tensor,
    per_channel,
    per_token,
    per_group,
    fake,
    fake_per_channel,
    of_blocks,
    of_float8,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_step_of_each_kind_is_allowed_and_no_more(
    kind: Callable[[Tensor], Tensor],
) -> None:
    found = limits(kind, torch.randn(3, 4))["output_0"]
    # One step of at most 0.08, next to values of rms 1.
    assert 1e-3 < found < 0.2


def test_what_is_not_quantized_has_no_limit_of_its_own() -> None:
    assert limits(torch.relu, torch.randn(3, 4)) == {}


def test_what_no_step_reaches_is_exact() -> None:
    assert limits(lambda x: x + 0 * per_tensor(x), torch.randn(3, 4)) == {}
