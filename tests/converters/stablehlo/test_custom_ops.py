"""Ops of the user's own, with rules of the user's own (docs/custom-ops.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import pytest
import torch
from torch import nn

import tpu_export
from tpu_export.converters.stablehlo.custom import RegistrationError, forget
from tpu_export.converters.stablehlo.registry import OWN, find_rule

aten = torch.ops.aten


class Fn(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


@torch.library.custom_op("tpx_custom::cube", mutates_args=())
def cube(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return scale * x**3


@cube.register_fake
def _(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


CUBE = torch.ops.tpx_custom.cube.default


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    before = dict(OWN)
    yield
    OWN.clear()
    OWN.update(before)


@pytest.mark.parametrize("name", [CUBE, cube], ids=["overload", "custom_op"])
def test_a_rule_is_used(check_module: Any, name: Any) -> None:
    @tpu_export.lowers(name)
    def rule(x: Any, scale: float = 1.0) -> Any:
        return scale * x**3

    check_module(Fn(lambda x: cube(x, 2.0)), (torch.randn(3, 4),))


def test_a_rule_of_the_user_wins_over_ours() -> None:
    ours = find_rule(aten.silu.default, "xla")

    @tpu_export.lowers(aten.silu.default)
    def rule(x: Any) -> Any:
        return x

    @tpu_export.lowers(aten.silu.default, target="litert")
    def other(x: Any) -> Any:
        return x

    assert find_rule(aten.silu.default, "xla") is rule is not ours
    assert find_rule(aten.silu.default, "litert") is other
    forget(__name__)
    assert find_rule(aten.silu.default, "xla") is ours


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a packet": (
        lambda: tpu_export.lowers(torch.ops.tpx_custom.cube),  # type: ignore[arg-type]
        "write torch.ops.tpx_custom.cube.default",
    ),
    "a name": (
        lambda: tpu_export.lowers("tpx_custom::cube"),  # type: ignore[arg-type]
        "takes an overload, not 'tpx_custom::cube'",
    ),
    "nothing": (lambda: tpu_export.lowers(), "names no op"),
    "no function": (lambda: tpu_export.lowers(CUBE)(3), "is a int"),  # type: ignore[type-var]
    "a target": (
        lambda: tpu_export.lowers(CUBE, target="tpu"),  # type: ignore[arg-type]
        'targets are "xla"',
    ),
    "a platform": (
        lambda: tpu_export.lowers(CUBE, platform="gpu"),  # type: ignore[arg-type]
        'platforms are "tpu" and "cpu"',
    ),
    "a platform of LiteRT": (
        lambda: tpu_export.lowers(CUBE, target="litert", platform="tpu"),
        "a .tflite has one program",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_registered_is_refused(name: str) -> None:
    register, words = WRONG[name]
    with pytest.raises(RegistrationError, match="TPX-0207") as caught:
        register()
    assert words in str(caught.value)


def test_a_second_rule_is_refused() -> None:
    @tpu_export.lowers(CUBE)
    def first(x: Any, scale: float = 1.0) -> Any:
        return x

    with pytest.raises(
        RegistrationError, match=r"first at test_custom_ops\.py:\d+"
    ) as caught:

        @tpu_export.lowers(CUBE)
        def second(x: Any, scale: float = 1.0) -> Any:
            return x

    assert "second at test_custom_ops.py:" in caught.value.hint
    assert find_rule(CUBE, "xla") is first


def test_the_same_definition_may_run_again() -> None:
    for _ in range(2):
        tpu_export.lowers(CUBE)(jnp.tanh)
    source = "import tpu_export\ntpu_export.lowers(op)(lambda x, scale=1.0: x)\n"
    for text in (source, "\n" + source):  # edited, and loaded again
        exec(compile(text, "model.py", "exec"), {"__name__": "model", "op": cube_2()})


def cube_2() -> Any:
    return torch.ops.aten.erfc.default
