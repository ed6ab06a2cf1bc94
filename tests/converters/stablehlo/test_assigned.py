"""What forward() assigns to attributes and buffers is state, in submodules too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tpu_export.exporter.capture import capture
from tpu_export.exporter.refusals import NotExportableError


class Sum(nn.Module):
    def __init__(self, *, buffer: bool) -> None:
        super().__init__()
        if buffer:
            self.register_buffer("total", torch.zeros(3))
        else:
            self.total = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        self.total = self.total + x
        return self.total * 2


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.past = {"k": torch.zeros(3)}

    def forward(self, x: Tensor) -> Tensor:
        self.past["k"] = self.past["k"] + x
        return self.past["k"]


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("buffer", [True, False])
def test_assigned(check_module: Any, depth: int, buffer: bool) -> None:
    module: nn.Module = Sum(buffer=buffer)
    for _ in range(depth):
        module = nn.Sequential(module)
    check_module(module, (torch.ones(3),), calls=3)


def test_a_tensor_replaced_in_a_dict_is_refused() -> None:
    with pytest.raises(NotExportableError, match=r"self\.past\['k'\]"):
        capture(Held(), (torch.ones(3),))


def test_strict_still_captures(check_module: Any) -> None:
    check_module(nn.Linear(3, 2), (torch.ones(1, 3),), strict=True)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("buffer", [True, False])
def test_strict_refuses_what_it_loses(depth: int, buffer: bool) -> None:
    module: nn.Module = Sum(buffer=buffer)
    for _ in range(depth):
        module = nn.Sequential(module)
    x = torch.ones(3)
    with pytest.raises(NotExportableError, match=r"loses .* self\.(0\.)?total"):
        capture(module, (x,), strict=True)
    assert torch.equal(module(x), x * 2)
    assert torch.equal(x, torch.ones(3))


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.seen: Tensor | None = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        self.seen = self.total * 2
        return self.seen


def test_strict_keeps_what_is_written_or_never_read(check_module: Any) -> None:
    check_module(Written(), (torch.ones(3),), strict=True, calls=3)


class Twice(nn.Module):
    """A submodule under two names, which torch traces by proxies of modules."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.first = inner
        self.second = nn.ModuleList([inner])
        self.scale = {"by": torch.tensor(3.0)}
        self.shift = [torch.tensor(1.0)]

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x) * self.scale["by"]
        return self.second[0](y) + self.shift[0]


@pytest.mark.parametrize("buffer", [True, False])
def test_assigned_in_a_shared_submodule(check_module: Any, buffer: bool) -> None:
    check_module(Twice(Sum(buffer=buffer)), (torch.ones(3),), calls=3)


def test_beside_a_shared_submodule_nothing_is_assigned(check_module: Any) -> None:
    check_module(Twice(nn.Linear(3, 3)), (torch.ones(3),), calls=2)
