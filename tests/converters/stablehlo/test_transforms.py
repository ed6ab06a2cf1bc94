"""Derivatives and maps that forward() takes by torch.func or torch.autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, func, nn
from torch.export import Dim

from tpu_export.exporter.capture import capture
from tpu_export.exporter.refusals import NotExportableError


class Model(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.call = call

    def forward(self, x: Tensor) -> Any:
        return self.call(self, x)


def energy(m: Any, x: Tensor) -> Tensor:
    return m.linear(x).tanh().sum()


def of_parameters(m: Any, x: Tensor) -> Any:
    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return func.functional_call(m.linear, parameters, (x,)).pow(2).sum()

    return func.grad(loss)(dict(m.linear.named_parameters()))


def forces(m: Any, x: Tensor) -> Tensor:
    with torch.enable_grad():
        place = x.detach().requires_grad_()
        return torch.autograd.grad(energy(m, place), place)[0]


CALLS: dict[str, Callable[..., Any]] = {
    "grad": lambda m, x: func.grad(lambda y: (y.sin() * y).sum())(x),
    "grad through a layer": lambda m, x: func.grad(lambda y: energy(m, y))(x),
    "grad and value": lambda m, x: func.grad_and_value(lambda y: energy(m, y))(x),
    "grad of parameters": of_parameters,
    "jacrev": lambda m, x: func.jacrev(torch.sin)(x[0]),
    "jacfwd": lambda m, x: func.jacfwd(torch.sin)(x[0]),
    "hessian": lambda m, x: func.hessian(lambda y: y.sin().sum())(x[0]),
    "vjp": lambda m, x: func.vjp(torch.sin, x)[1](torch.ones_like(x)),
    "jvp": lambda m, x: func.jvp(torch.sin, (x,), (torch.ones_like(x),)),
    "vmap": lambda m, x: func.vmap(lambda r: m.linear(r) * (r * r).sum())(x),
    "vmap of grad": lambda m, x: func.vmap(func.grad(lambda r: (r**3).sum()))(x),
    "autograd.grad": forces,
}


@pytest.mark.parametrize("name", CALLS)
def test_derivatives(check_module: Any, name: str) -> None:
    more = [(torch.randn(4, 3),)]
    tol = (1e-5, 1e-5)
    check_module(Model(CALLS[name]), (torch.randn(4, 3),), more=more, tol=tol)


@pytest.mark.parametrize("name", ["grad through a layer", "vmap of grad"])
def test_dynamic_sizes(check_module: Any, name: str) -> None:
    check_module(
        Model(CALLS[name]),
        (torch.randn(4, 3),),
        more=[(torch.randn(7, 3),)],
        dynamic_shapes=({0: Dim("n", min=2)},),
        tol=(1e-5, 1e-5),
    )


def test_state_beside_a_derivative(check_module: Any) -> None:
    class Counts(Model):
        def __init__(self) -> None:
            super().__init__(forces)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    check_module(Counts(), (torch.randn(4, 3),), calls=2, tol=(1e-5, 1e-5))


def test_what_torch_cannot_follow_is_refused_and_leaves_no_transform_on() -> None:
    def branch(_: Any, x: Tensor) -> Any:
        return func.vmap(func.grad(lambda r: r.sum() if r.sum() > 0 else -r.sum()))(x)

    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    with pytest.raises(NotExportableError, match="the model itself fails"):
        capture(Model(branch), (torch.randn(4, 3),))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == depth


def test_a_program_that_lost_its_argument_is_refused() -> None:
    program = torch.export.export(Model(CALLS["grad"]), (torch.randn(4, 3),))
    with pytest.raises(
        NotExportableError, match=r"lifted_tensor_0 stands as a constant"
    ):
        capture(program)
