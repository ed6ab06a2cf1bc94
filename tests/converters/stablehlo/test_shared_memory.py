"""Memory that stored tensors, inputs and results share: a write is seen through each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tpu_export.converters.stablehlo.errors import UnsupportedWriteError
from tpu_export.exporter.refusals import NotExportableError


class Buffers(nn.Module):
    """Two buffers, the second a view of the first; `call` is forward."""

    def __init__(self, view: Callable[[torch.Tensor], torch.Tensor], call: Any) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(6.0).reshape(2, 3))
        self.register_buffer("b", view(self.a))
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, x)


def write_a(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.a.add_(x)
    return m.b * 1


def write_b(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.b.mul_(x.sum())
    return m.a * 1


VIEWS = {
    "same": lambda a: a,
    "rows": lambda a: a[1:],
    "columns": lambda a: a[:, ::2],
    "transposed": lambda a: a.T,
}


@pytest.mark.parametrize("call", [write_a, write_b])
@pytest.mark.parametrize("view", VIEWS)
def test_a_buffer_and_a_view_of_it(check_module: Any, view: str, call: Any) -> None:
    check_module(Buffers(VIEWS[view], call), (torch.ones(2, 3),), calls=2)


class Attributes(nn.Module):
    """State in a plain attribute, of which torch.export says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(3)
        self.kept = [torch.zeros(3)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.last
        self.last = x * 2
        return y


def test_an_attribute_that_is_assigned_is_state(run_module: Any) -> None:
    x = torch.ones(3)
    program = run_module(Attributes(), (x,))[2]
    assert program(x.numpy()).tolist() == [1, 1, 1]
    assert program(x.numpy()).tolist() == [3, 3, 3]


class Listed(Attributes):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + self.kept[0]
        self.kept[0] = x * 2
        return y


def test_a_list_cannot_be_state(run_module: Any) -> None:
    with pytest.raises(NotExportableError, match=r"self\.kept\[0\]"):
        run_module(Listed(), (torch.ones(3),))


ALIASES = {
    "meshgrid": lambda x: torch.meshgrid(x, x, indexing="ij")[0],
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, torch.ones(3))[0],
    "atleast_2d": torch.atleast_2d,
    "einsum": lambda x: torch.einsum("i->i", x),
    "no dropout": lambda x: nn.functional.dropout(x, 0.5, training=False),
}


@pytest.mark.parametrize("name", ALIASES)
def test_a_write_to_what_an_alias_is_of(check_module: Any, name: str) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        own = x.clone()
        alias = ALIASES[name](own)
        own.add_(1)
        return alias * 2

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(x)

    check_module(Model(), (torch.arange(3.0),))


def test_one_example_given_twice_is_two_inputs(run_module: Any) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    x = torch.ones(2)
    program = run_module(Model(), (x, x))[2]
    assert program(x.numpy(), 3 * x.numpy()).tolist() == [-2, -2]


@torch.library.custom_op("tpx_shared::fill", mutates_args=("x",))
def fill(x: torch.Tensor) -> None:
    x.fill_(1)


def test_a_write_to_an_expanded_tensor_is_refused(run_module: Any) -> None:
    """torch's own ops refuse it by themselves; an op of the user's does not."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone().expand(3, 2)
            torch.ops.tpx_shared.fill(y)
            return y * 2

    with pytest.raises(UnsupportedWriteError, match="writes to an expanded tensor"):
        run_module(Model(), (torch.ones(2),))
