"""Control flow: branches, loops whose end is known, and others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan

from litert_sweep.case import case


@case("control", quick=True)
def bounded_while_loop() -> Any:
    def forward(x: Tensor) -> list[Tensor]:
        def goes_on(i: Tensor, y: Tensor) -> Tensor:
            return i < 10

        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, y * 0.9 + torch.sin(y)

        return list(while_loop(goes_on, body, (torch.tensor(0), x)))

    return forward, torch.randn(4)


@case("control")
def bounded_while_loop_by_data() -> Any:
    """The data decides when it ends, a counter by when at the latest."""

    def forward(x: Tensor) -> list[Tensor]:
        def goes_on(i: Tensor, y: Tensor) -> Tensor:
            return (i < 20) & (y.sum() < 100)

        def body(i: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, y * 2

        return list(while_loop(goes_on, body, (torch.tensor(0), x)))

    return forward, torch.rand(4) + 1


@case("control", code="TPX-0203")
def endless_while_loop() -> Any:
    def forward(x: Tensor) -> Tensor:
        (y,) = while_loop(lambda y: y.sum() < 100, lambda y: (y * 2,), (x,))
        return y

    return forward, torch.rand(4) + 1


@case("control", code="TPX-0203")
def long_while_loop() -> Any:
    def forward(x: Tensor) -> Tensor:
        zero = torch.tensor(0)
        found = while_loop(
            lambda i, y: i < 10**6, lambda i, y: (i + 1, y + 1), (zero, x)
        )
        return found[1]

    return forward, torch.rand(4)


@case("control")
def nested_while_loops() -> Any:
    def forward(x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Tensor:
            return while_loop(
                lambda i, y: i < 3,
                lambda i, y: (i + 1, y * 0.9 + torch.sin(y)),
                (torch.tensor(0), y),
            )[1]

        return while_loop(
            lambda i, y: i < 4, lambda i, y: (i + 1, inner(y)), (torch.tensor(0), x)
        )[1]

    return forward, torch.randn(4)


@case("control", code="TPX-0203")
def nested_scans() -> Any:
    """Of 62,500 steps."""

    def forward(x: Tensor, h: Tensor) -> list[Tensor]:
        def inner(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return h + x, h * 1

        def outer(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return scan(inner, h, x, dim=0)

        return list(scan(outer, h, x, dim=0))

    return forward, torch.randn(250, 250), torch.zeros(())


@case("control")
def scans() -> Any:
    def forward(x: Tensor, h: Tensor) -> list[Tensor]:
        def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            h = torch.tanh(h + x)
            return h, h * 2

        return list(scan(step, h, x, dim=0))

    return forward, torch.randn(12, 3), torch.zeros(3)


@case("control")
def associative() -> Any:
    def forward(x: Tensor) -> Tensor:
        return associative_scan(
            lambda a, b: a * b + b, x, dim=0, combine_mode="generic"
        )

    return forward, torch.randn(9, 3)


@case("control")
def maps() -> Any:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return map_over(lambda x, y: torch.softmax(x, 0) @ y, x, y)

    return forward, torch.randn(6, 3), torch.randn(3, 2)


@case("control")
def cond() -> Any:
    def forward(x: Tensor) -> Tensor:
        return torch.cond(
            x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,)
        )

    return forward, torch.randn(4)


@case("control", code="TPX-0601")
def draws() -> Any:
    """Random bits have no form; a seed is state."""
    return lambda x: x + torch.rand(3), torch.randn(3)
