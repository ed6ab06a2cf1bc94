from __future__ import annotations

import itertools

import jax
import pytest
import torch
from torch import nn

from tpu_export.converters.stablehlo.context import LoweringContext, lowering
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.ops.experts import BLOCK, grouped_rows
from tpu_export.converters.stablehlo.registry import find_rule, lowers_named

aten = torch.ops.aten
_NAMES = itertools.count()

OFFSETS = [
    [0, 3, 3, 20],  # empty groups at the start and inside
    [5, 5, 5, 5],
    [BLOCK, 2 * BLOCK, 2 * BLOCK + 1, 200],  # ends on a block's edge and just after it
    [0, 0, 0, 0],
    [200, 200, 200, 200],
    [1, 2, 3, 4],
]


def expected(x, weight, offs):
    y, start = torch.zeros(x.shape[0], weight.shape[2], dtype=x.dtype), 0
    for group, end in enumerate(offs.tolist()):
        y[start:end] = x[start:end] @ weight[group]
        start = end
    return y


@pytest.mark.parametrize("target", ["xla", "litert"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offsets", OFFSETS)
def test_grouped_rows(compiled_rule, offsets, dtype, target):
    x = torch.randn(offsets[-1] + 5, 8, dtype=dtype)
    weight = torch.randn(4, 8, 6, dtype=dtype)
    offs = torch.tensor(offsets, dtype=torch.int32)
    with lowering(LoweringContext(target)):
        got = compiled_rule(grouped_rows, x, weight, offs)
    torch.testing.assert_close(got, expected(x, weight, offs))


def test_an_expert_without_rows_spoils_nothing(compiled_rule):
    x, weight = torch.randn(6, 8), torch.randn(3, 8, 6)
    weight[1] = float("nan")
    offs = torch.tensor([2, 2, 6])
    got = compiled_rule(grouped_rows, x, weight, offs)
    torch.testing.assert_close(got, expected(x, weight, offs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_mm(compare, dtype):
    x, weight = torch.randn(40, 16).to(dtype), torch.randn(4, 16, 8).to(dtype)
    offs = torch.tensor([0, 17, 30, 40], dtype=torch.int32)
    compare(aten._grouped_mm.default, x, weight, offs)
    compare(aten._grouped_mm.default, x.view(4, 10, 16), weight)


def test_grouped_mm_of_columns_is_refused():
    x, offs = jax.numpy.ones((4, 8)), jax.numpy.array([4, 8])
    with pytest.raises(UnsupportedOptionError, match="2-d and 2-d"):
        find_rule(aten._grouped_mm.default, "xla")(x, x.T, offs)


def test_a_module_with_a_dynamic_number_of_rows(check_module):
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 8, 8).bfloat16())

        def forward(self, x: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
            return torch._grouped_mm(x, self.weight, offs)

    def given(*offsets: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(offsets[-1], 8).bfloat16()
        return x, torch.tensor(offsets, dtype=torch.int32)

    check_module(
        Experts(),
        given(3, 4, 9),
        more=[given(0, 70, 70), given(1, 1, 2)],
        dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=512)}, None),
    )


def test_a_rule_by_name_serves_an_op_that_is_defined_later():
    name = f"tpx_test::later{next(_NAMES)}"
    lowers_named(name)(lambda x: x)
    with pytest.raises(ValueError, match="duplicate"):
        lowers_named(name)(lambda x: x)
    op = torch.library.custom_op(name, mutates_args=())(_clone)
    assert find_rule(op._opoverload, "xla") is not None
    assert find_rule(op._opoverload, "litert") is not None


def _clone(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
