"""Channels stay last between convolutions, and results are what they were."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tpu_export.converters.stablehlo.layout import channels_last
from tpu_export.converters.stablehlo.layout.cut import sink_side

W = jnp.asarray(np.random.default_rng(1).standard_normal((4, 4, 3, 3)), jnp.float32)
B = jnp.arange(4.0, dtype=jnp.float32)


def conv(x: Array, w: Array, groups: int = 1) -> Array:
    """Convolve as the rule for LiteRT does."""
    y = lax.conv_general_dilated(
        x.transpose(0, 2, 3, 1),
        w.transpose(0, 2, 3, 1),
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "OHWI", "NHWC"),
        feature_group_count=groups,
    )
    return y.transpose(0, 3, 1, 2)


def window(x: Array, init: float, function: Any) -> Array:
    y: Array = lax.reduce_window(x, init, function, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return y


def squeezed_excited(y: Array) -> Array:
    return y * jax.nn.sigmoid(jnp.mean(y, (2, 3), keepdims=True))


def normalized(y: Array) -> Array:
    mean = jnp.mean(y, 1, keepdims=True)
    return (y - mean) * lax.rsqrt(jnp.var(y, 1, keepdims=True) + 1e-5)


def gelu(y: Array) -> Array:
    found: Array = lax.composite(jax.nn.gelu, name="aten.gelu.default")(y)
    return found


# What is between two convolutions, without a transpose.
BETWEEN: dict[str, Callable[[Array], Array]] = {
    "bias": lambda y: y + B.reshape(-1, 1, 1),
    "batch norm": lambda y: (y - B.reshape(1, -1, 1, 1)) * (B + 1)[None, :, None, None],
    "relu6": lambda y: jnp.clip(y, 0, 6),
    "where": lambda y: jnp.where(y > 0, y, 0.25 * y),
    "prelu": lambda y: jnp.where(y > 0, y, B[None, :, None, None] * y),
    "composite": gelu,
    "pad": lambda y: jnp.pad(y, [(0, 0), (0, 0), (0, 1), (2, 0)]),
    "crop": lambda y: y[:, :, 1:-1, ::2],
    "flip": lambda y: jnp.flip(y, 3),
    "max pool": lambda y: window(y, -jnp.inf, lax.max),
    "average pool": lambda y: window(y, 0.0, lax.add) / 4,
    "concat of channels": lambda y: jnp.concatenate([y[:, :2], y[:, 1:3]], 1),
    "split": lambda y: jnp.concatenate(jnp.split(y, 2, 1)[::-1], 1),
    "chosen channels": lambda y: jnp.take(
        y, jnp.asarray([3, 1, 0, 0]), axis=1, mode="clip"
    ),
    "squeeze and excitation": squeezed_excited,
    "norm over channels": normalized,
    "nearest": lambda y: jnp.repeat(jnp.repeat(y, 2, 2), 3, 3),
    "residual": lambda y: y + jnp.tanh(y),
    "sum along rows": lambda y: jnp.cumsum(y, 2) + jnp.sum(y, 3, keepdims=True),
    "permuted inside": lambda y: (y.transpose(0, 2, 3, 1) * B).transpose(0, 3, 1, 2),
}


def count(closed: ClosedJaxpr) -> int:
    """Count the transposes of images, not those of filters and inputs."""
    eqns = [e for e in closed.jaxpr.eqns if e.primitive.name == "transpose"]
    return sum(e.invars[0] not in closed.jaxpr.invars for e in eqns)


def agree(function: Callable[..., Any], closed: ClosedJaxpr, *args: Array) -> None:
    wanted, found = jax.jit(function)(*args), jax.jit(jaxpr_as_fun(closed))(*args)
    for want, got in zip(jax.tree.leaves(wanted), found, strict=True):
        assert want.shape == got.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", BETWEEN)
def test_nothing_is_moved_between_convolutions(name: str) -> None:
    def function(w: Array, x: Array) -> Array:
        return conv(BETWEEN[name](conv(x, w)), w)

    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 6, 8)), jnp.float32)
    closed = channels_last(jax.make_jaxpr(function)(W, x), 1)
    assert count(closed) == 1  # to the result
    agree(function, closed, W, x)


# What has no form, or ends the chain.
ENDS: dict[str, tuple[Callable[[Array], Any], int]] = {
    "flat for a matrix": (lambda y: y.reshape(2, -1), 1),
    "rows of places": (lambda y: y.reshape(2, 4, -1).transpose(0, 2, 1), 0),
    "mean": (lambda y: jnp.mean(y, (2, 3)), 0),
    "last places": (lambda y: jnp.sum(y, (0, 1)), 1),
    "classes": (lambda y: jnp.argmax(y, 1), 0),
    "sorted": (lambda y: jnp.sort(y, 1), 1),
    "groups": (lambda y: jnp.mean(y.reshape(2, 2, 2, 6, 8), 2), 1),
    "two results": (lambda y: (y, y.transpose(0, 2, 3, 1)), 1),
    "rows": (lambda y: y.transpose(0, 1, 3, 2), 2),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_a_chain_is_moved_once(name: str) -> None:
    end, moves = ENDS[name]

    def function(w: Array, x: Array) -> Any:
        return end(jnp.maximum(conv(x, w), 0))

    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 6, 8)), jnp.float32)
    closed = channels_last(jax.make_jaxpr(function)(W, x), 1)
    assert count(closed) <= moves
    agree(function, closed, W, x)


def test_a_program_without_convolutions_is_itself() -> None:
    closed = jax.make_jaxpr(lambda x: x.transpose(0, 2, 3, 1) + 1)(
        jnp.ones((1, 2, 3, 4))
    )
    assert channels_last(closed, 0) is closed


def test_writing_again_changes_nothing() -> None:
    def function(w: Array, x: Array) -> Array:
        return conv(squeezed_excited(conv(x, w)), w)

    once = channels_last(jax.make_jaxpr(function)(W, jnp.ones((2, 4, 6, 8))), 1)
    assert str(channels_last(once, 1)) == str(once)


def test_arguments_and_results_come_with_channels_last() -> None:
    def function(w: Array, x: Array) -> Array:
        return jnp.maximum(conv(jnp.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), w), 0)

    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 6, 8)), jnp.float32)
    closed = channels_last(jax.make_jaxpr(function)(W, x), 1, [1], [0])
    moved = [e for e in closed.jaxpr.eqns if e.primitive.name == "transpose"]
    assert [e.invars[0] for e in moved] == [closed.jaxpr.invars[0]]
    agree(
        lambda w, y: function(w, y.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1),
        closed,
        W,
        x.transpose(0, 2, 3, 1),
    )


def test_the_cut_is_the_cheapest_of_all() -> None:
    draw = random.Random(0)
    for _ in range(40):
        edges = [
            (a, b, draw.randrange(9))
            for a, b in itertools.permutations(range(6), 2)
            if draw.random() < 0.5
        ]
        free = [
            set(s) for r in range(5) for s in itertools.combinations(range(1, 5), r)
        ]
        prices = {
            frozenset(s): sum(c for a, b, c in edges if a not in s and b in s)
            for s in ({5, *s} for s in free)
        }
        found = frozenset(sink_side(edges, 6, 0, 5))
        best = min(prices.values())
        assert prices[found] == best
        assert len(found) == min(len(s) for s, p in prices.items() if p == best)
