"""What depends on the data is refused, with op, line and reason; it is no fault of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tpu_export.converters.stablehlo.bindings import UnsupportedInputError
from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.refusals import RuleFailedError
from tpu_export.converters.stablehlo.registry import find_rule, lowers
from tpu_export.exporter.capture import capture


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


X, N = torch.tensor([1.0, 0.0, 3.0, 0.0]), torch.tensor(2)


def size(n: torch.Tensor) -> int:
    found = n.item()
    torch._check(found >= 1)
    torch._check(found <= 4)
    return found  # type: ignore[return-value]


def of_list(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    found = x.long().tolist()
    torch._check(found[0] >= 0)
    return torch.zeros(found[0])


def twice(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return torch.zeros(max(size(n) // 2, 3))


SIZES: dict[str, Callable[..., Any]] = {
    "arange": lambda x, n: torch.arange(size(n)),
    "zeros": lambda x, n: torch.zeros(size(n) + 1, 3),
    "full": lambda x, n: torch.full((size(n),), 2.0),
    "expand": lambda x, n: x[:, None].expand(4, size(n)),
    "repeat": lambda x, n: x.repeat(size(n)),
    "reshape": lambda x, n: x.reshape(size(n), -1),
    "slice": lambda x, n: x[: size(n)],
    "narrow": lambda x, n: x.narrow(0, 0, size(n)),
    "split_with_sizes": lambda x, n: torch.split(x, [size(n), 4 - size(n)]),
    "pad": lambda x, n: nn.functional.pad(x, (0, size(n))),
    "topk": lambda x, n: torch.topk(x, size(n)).values,
    "sym_max": twice,
}


def refused(function: Callable[..., Any]) -> str:
    """Return the message for LiteRT; for others test_counted_sizes.py has what lowers."""
    with pytest.raises(UnsupportedOptionError) as caught:
        capture(Fn(function), (X, N)).lower(target="litert")
    message = str(caught.value)
    assert message.startswith("TPX-0290")
    assert "fault of tpu-export" not in message
    assert message.count("test_refusals.py:") == message.count(".py:")
    return message


@pytest.mark.parametrize("op", SIZES)
def test_a_size_from_item(op: str) -> None:
    message = refused(SIZES[op])
    assert f"{op} takes a size that depends on the data" in message
    assert "it comes from item() at test_refusals.py:" in message
    assert f"{op}" in message.split(", at ")[1]


def test_a_size_from_tolist() -> None:
    assert "zeros takes a size that depends on the data" in refused(of_list)


SHAPES: dict[str, Callable[..., Any]] = {
    "aten.nonzero.default": lambda x, n: x.nonzero(),
    "aten.nonzero_numpy.default": lambda x, n: x.nonzero(as_tuple=True),
    "aten.argwhere.default": lambda x, n: torch.argwhere(x),
    "aten.where.default": lambda x, n: torch.where(x > 0),
    "aten.masked_select.default": lambda x, n: x.masked_select(x > 0),
    "aten.index.Tensor": lambda x, n: x[x > 0],
    "aten._unique2.default": lambda x, n: x.unique(),
    "aten.unique_dim.default": lambda x, n: torch.unique(x[None], dim=0),
    "aten.unique_consecutive.default": lambda x, n: torch.unique_consecutive(x),
    "aten.bincount.default": lambda x, n: torch.bincount(x.long()),
    "aten.repeat_interleave.self_Tensor": lambda x, n: x.repeat_interleave(x.long()),
}


@pytest.mark.parametrize("op", SHAPES)
def test_a_shape_that_depends_on_the_data(op: str) -> None:
    message = refused(SHAPES[op])
    assert "that depends on the data" in message
    assert f"at {op} in the root (test_refusals.py:" in message


VALUES: dict[str, Callable[..., Any]] = {
    "item() as a number": lambda x, n: x * n.item() + x[2].item(),
    "item() as a place": lambda x, n: x[size(n) - 1],
    "tolist() as numbers": lambda x, n: sum(x.long().tolist()) * x,
    "a size that is returned": lambda x, n: (x, size(n)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_the_data_are_no_sizes(check_module: Any, name: str) -> None:
    check_module(Fn(VALUES[name]), (X, N))


@torch.library.custom_op("tpx_test::broken", mutates_args=())
def broken(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


broken.register_fake(torch.empty_like)


@torch.library.custom_op("tpx_test::curious", mutates_args=())
def curious(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


curious.register_fake(torch.empty_like)


def test_a_size_that_the_ranges_leave_open() -> None:
    op = torch.ops.tpx_test.curious.default
    if find_rule(op, "xla") is None:
        lowers(op)(lambda x: x if x.shape[0] > 7 else x + 0)
    wide, narrow = torch.export.Dim("n", max=9), torch.export.Dim("n", max=7)
    module = Fn(lambda x, n: curious(x))
    words = (
        "whether n > 7, which the ranges of the dynamic dimensions leave open, at the"
    )
    with pytest.raises(UnsupportedOptionError, match=words) as caught:
        capture(module, (X, N), dynamic_shapes={"args": ({0: wide}, None)}).lower()
    assert "aten" not in caught.value.message
    assert "tpx_test.curious.default" in caught.value.message
    assert "range" in caught.value.hint
    capture(module, (X, N), dynamic_shapes={"args": ({0: narrow}, None)}).lower()


def test_a_rule_that_raises_is_a_fault_of_ours() -> None:
    op = torch.ops.tpx_test.broken.default
    if find_rule(op, "xla") is None:
        lowers(op)(lambda x: x.reshape(5))
    with pytest.raises(RuleFailedError, match=r"failed at the root \(test_ref"):
        capture(Fn(lambda x, n: broken(x)), (X, N)).lower()


def test_a_generator_is_refused_with_its_line() -> None:
    def draws(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(4, generator=torch.Generator())

    with pytest.raises(UnsupportedInputError) as info:
        capture(draws, (X,)).lower()
    line = draws.__code__.co_firstlineno + 1
    where = f"aten.rand.generator in the root (test_refusals.py:{line})"
    assert info.value.message == f"the model draws from a torch.Generator in {where}"
    assert "generator=" in info.value.hint
