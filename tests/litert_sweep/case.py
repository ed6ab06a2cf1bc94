"""What a case of the sweep is, and the one table that they fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


class Function(nn.Module):
    """A function, and the layers that it calls, as a module."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args, *self.layers)


@dataclass(frozen=True)
class Case:
    """One op, or a tail of few, and what is expected of it.

    Attributes:
        name: of the case.
        family: a row of the totals.
        make: gives the module and its example inputs.
        code: of the error that must refuse it; None where it must be right.
        quick: whether CI runs it.
    """

    name: str
    family: str
    make: Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]
    code: str | None = None
    quick: bool = False


CASES: dict[str, Case] = {}
Body = Callable[[], tuple[Any, ...]]


def case(
    family: str, *, code: str | None = None, quick: bool = False
) -> Callable[[Body], Body]:
    """Add a case: its body returns (function or module, *inputs), layers among them last."""

    def register(body: Body) -> Body:
        name = body.__name__.strip("_")
        assert name not in CASES, f"duplicate case {name}"

        def make() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
            torch.manual_seed(0)
            function, *given = body()
            inputs = tuple(x for x in given if isinstance(x, torch.Tensor))
            layers = [x for x in given if isinstance(x, nn.Module)]
            if isinstance(function, nn.Module):
                return function.eval(), inputs
            return Function(function, *layers).eval(), inputs

        CASES[name] = Case(name, family, make, code, quick)
        return body

    return register
