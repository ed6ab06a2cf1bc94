from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpu_export.converters.stablehlo.ops.foreach import BINARY, UNARY

aten = torch.ops.aten
A, B = (
    [torch.rand(3) * 0.8 + 0.1, torch.rand(2, 2) * 0.8 + 0.1],
    [torch.rand(3) + 1] * 2,
)
B[1] = torch.rand(2, 2) + 1


def each(name: str) -> Any:
    return getattr(aten, f"_foreach_{name}")


@pytest.mark.parametrize("name", UNARY)
def test_unary(compare, name):
    compare(each(name).default, A)


@pytest.mark.parametrize("name", BINARY)
def test_binary(compare, name):
    compare(each(name).List, A, B)
    compare(each(name).Scalar, A, 2)
    compare(each(name).ScalarList, A, [0.5, 3])


def test_alpha_and_tensors_for_all(compare):
    compare(each("add").List, A, B, alpha=0.5)
    compare(each("sub").List, A, B, alpha=2)
    for name in ("add", "mul", "div"):
        compare(each(name).Tensor, A, torch.tensor(0.5))


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_products(compare, name):
    compare(each(name).Scalar, A, B, A)
    compare(each(name).Scalar, A, B, A, 0.5)
    compare(each(name).ScalarList, A, B, A, [0.5, 2.0])
    compare(each(name).Tensor, A, B, A, torch.tensor([0.5, 2.0]))


def test_lerp_pow_norm(compare):
    compare(each("lerp").List, A, B, [x.flip(0) for x in A])
    compare(each("lerp").Scalar, A, B, 0.3)
    compare(each("lerp").ScalarList, A, B, [0.3, 0.9])
    compare(each("pow").ScalarAndTensor, 2.0, A)
    compare(each("norm").Scalar, A)
    compare(each("norm").Scalar, A, 1)


def test_copy_and_zero(compare):
    compare(each("copy").default, A, [x.double() for x in B])
    compare(each("zero").default, [torch.arange(3), torch.ones(2, 2)])


def test_integers_promote_as_their_op_does(compare):
    compare(each("add").Scalar, [torch.arange(3), torch.ones(2)], 0.5)
    compare(each("sqrt").default, [torch.arange(3)])


class Optimizer(nn.Module):
    """State of lists, written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(3))
        self.register_buffer("b", torch.ones(2, 2))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        torch._foreach_mul_([self.a, self.b], 0.9)
        torch._foreach_add_([self.a, self.b], [x, y], alpha=0.1)
        torch._foreach_lerp_([self.b], [y], 0.5)
        roots = torch._foreach_sqrt([x.abs(), y.abs()])
        torch._foreach_addcdiv_(roots, [x, y], [x.exp(), y.exp()], value=2)
        torch._foreach_copy_([x], [self.a])
        return self.a + 1, roots


def test_lists_written_in_place(check_module):
    lowered = check_module(Optimizer(), (torch.randn(3), torch.randn(2, 2)), calls=3)
    assert [slot.name for slot in lowered.program.signature.state] == ["a", "b"]
    assert lowered.program.signature.mutated_inputs == ("x",)


class OneList(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        torch._foreach_add_([y], 2)
        torch._foreach_zero_([y[:1]])
        return y


def test_a_list_of_one_and_of_views(check_module):
    check_module(OneList(), (torch.randn(3),))
