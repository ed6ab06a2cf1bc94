"""Rules of the user that call Python functions at run time: an artifact has no Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from jax.experimental import io_callback
from torch import nn

import tpu_export
from tpu_export.converters.stablehlo.refusals import RuleFailedError
from tpu_export.converters.stablehlo.registry import OWN, Target
from tpu_export.exporter.capture import capture

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    before = dict(OWN)
    yield
    OWN.clear()
    OWN.update(before)


def doubled(x: Any) -> Any:
    return jax.pure_callback(lambda y: y * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def in_a_loop(x: Any) -> Any:
    def body(_: Any, y: Any) -> Any:
        jax.debug.print("y {}", y)
        return y * 2

    return jax.lax.fori_loop(0, 3, body, x)


def printed(x: Any) -> Any:
    jax.debug.print("x {}", x)
    return x


def noted(x: Any) -> Any:
    jax.debug.callback(print, x)
    return x


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pure_callback": (doubled, "jax.pure_callback"),
    "io_callback": (
        lambda x: io_callback(jnp.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x),
        "jax.experimental.io_callback",
    ),
    "debug.print": (printed, "jax.debug.print"),
    "debug.callback": (noted, "jax.debug.callback"),
    "below jit": (lambda x: jax.jit(doubled)(x), "jax.pure_callback"),
    "in a loop": (in_a_loop, "jax.debug.print"),
    "in a branch": (
        lambda x: jax.lax.cond(x.sum() > 0, printed, jnp.sin, x),
        "jax.debug.print",
    ),
}


@pytest.mark.parametrize("target", ["xla", "litert"])
@pytest.mark.parametrize("name", CASES)
def test_callbacks_are_refused(name: str, target: Target) -> None:
    function, called = CASES[name]

    @tpu_export.lowers(aten.silu.default)
    def mine(x: Any) -> Any:
        return function(x)

    captured = capture(nn.SiLU(), (torch.randn(3),))
    with pytest.raises(RuleFailedError) as caught:
        captured.lower(target=target)
    assert caught.value.code == "TPX-0204"
    said = caught.value.message
    start = r"your rule for aten.silu.default (mine at test_callbacks.py:"
    assert said.startswith(start)
    assert f", which calls back to Python ({called})" in said
    assert "has line" in said


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_callbacks_of_one_platform_are_refused(platform: Any) -> None:
    @tpu_export.lowers(aten.silu.default, platform=platform)
    def mine(x: Any) -> Any:
        return printed(x)

    captured = capture(nn.SiLU(), (torch.randn(3),))
    with pytest.raises(RuleFailedError, match="mine at test_callbacks"):
        captured.lower()
