"""Recurrent layers and cells: one product over all steps, then a scan.

LiteRT runs no loops: there the steps are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.context import current
from tpu_export.converters.stablehlo.registry import Target, lowers

aten = torch.ops.aten

State: TypeAlias = tuple[Array, ...]
Step: TypeAlias = Callable[["Weights", State, Array], State]


@dataclass(frozen=True)
class Weights:
    """One direction of one layer; gates lie along the first axis."""

    w_ih: Array
    w_hh: Array
    b_ih: Array | None = None
    b_hh: Array | None = None
    w_hr: Array | None = None

    def project_input(self, x: Array) -> Array:
        """Return what the input gives to every gate, for all steps at once."""
        return _linear(x, self.w_ih, self.b_ih)

    def project_state(self, h: Array) -> Array:
        """Return what the last output gives to every gate."""
        return _linear(h, self.w_hh, self.b_hh)


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    y = lax.dot_general(x, weight, (((x.ndim - 1,), (1,)), ((), ())))
    return y if bias is None else y + bias


def _lstm_step(weights: Weights, state: State, x: Array) -> State:
    h, c = state
    i, f, g, o = jnp.split(x + weights.project_state(h), 4, axis=-1)
    c = lax.logistic(f) * c + lax.logistic(i) * jnp.tanh(g)
    h = lax.logistic(o) * jnp.tanh(c)
    return (h if weights.w_hr is None else _linear(h, weights.w_hr, None)), c


def _gru_step(weights: Weights, state: State, x: Array) -> State:
    (h,) = state
    xr, xz, xn = jnp.split(x, 3, axis=-1)
    hr, hz, hn = jnp.split(weights.project_state(h), 3, axis=-1)
    z = lax.logistic(xz + hz)
    n = jnp.tanh(xn + lax.logistic(xr + hr) * hn)
    return ((h - n) * z + n,)


def _rnn_step(
    activation: Callable[[Array], Array], weights: Weights, state: State, x: Array
) -> State:
    return (activation(x + weights.project_state(state[0])),)


_tanh_step = partial(_rnn_step, jnp.tanh)
_relu_step = partial(_rnn_step, jax.nn.relu)


def _select_relu(x: Array) -> Array:
    """Keep NaN. XNNPACK fails to prepare the MAXIMUMs of many steps in one graph."""
    return jnp.where(x < 0, jnp.zeros((), x.dtype), x)


def _layers(
    params: Sequence[Array], has_biases: bool, projected: bool
) -> Iterator[Weights]:
    size = 2 + 2 * has_biases + projected
    for start in range(0, len(params), size):
        w_ih, w_hh, *rest = params[start : start + size]
        w_hr = rest.pop() if projected else None
        b_ih, b_hh = rest if has_biases else (None, None)
        yield Weights(w_ih, w_hh, b_ih, b_hh, w_hr)


def _direction(
    step: Step, weights: Weights, state: State, x: Array, target: Target, reverse: bool
) -> tuple[State, Array]:
    """Run one direction over x [time, batch, features]."""
    gates = weights.project_input(x)
    if target == "xla":

        def body(carry: State, gate: Array) -> tuple[State, Array]:
            carry = step(weights, carry, gate)
            return carry, carry[0]

        return lax.scan(body, state, gates, reverse=reverse)
    times = range(gates.shape[0])
    outputs: dict[int, Array] = {}
    for time in reversed(times) if reverse else times:
        state = step(weights, state, gates[time])
        outputs[time] = state[0]
    return state, jnp.stack([outputs[time] for time in times])


def _dropped(x: Array, p: float) -> Array:
    keep = jax.random.bernoulli(current().next_key(), 1 - p, x.shape)
    return jnp.where(keep, x / (1 - p), 0).astype(x.dtype)


def _stack(
    step: Step,
    x: Array,
    states: Sequence[Array],
    layers: Sequence[Weights],
    dropout: float,
    bidirectional: bool,
    target: Target,
) -> tuple[Array, State]:
    """Run all layers over x [time, batch, features]; states are [layers, batch, hidden]."""
    ways = 2 if bidirectional else 1
    finals: list[State] = []
    for first in range(0, len(layers), ways):
        if first and dropout:
            x = _dropped(x, dropout)
        outputs = []
        for way in range(ways):
            index = first + way
            initial = tuple(s[index] for s in states)
            args = (layers[index], initial, x, target, way == 1)
            final, y = _direction(step, *args)
            finals.append(final)
            outputs.append(y)
        x = jnp.concatenate(outputs, axis=-1) if ways == 2 else outputs[0]
    return x, tuple(jnp.stack(parts) for parts in zip(*finals, strict=True))


def _run(
    step: Step,
    x: Array,
    states: Sequence[Array],
    params: Sequence[Array],
    has_biases: bool,
    dropout: float,
    bidirectional: bool,
    batch_first: bool,
    target: Target,
) -> tuple[Array, ...]:
    projected = len(states) == 2 and states[0].shape[2] != states[1].shape[2]
    layers = list(_layers(params, has_biases, projected))
    x = x.swapaxes(0, 1) if batch_first else x
    y, final = _stack(step, x, states, layers, dropout, bidirectional, target)
    return (y.swapaxes(0, 1) if batch_first else y), *final


def _lstm(
    x: Array,
    hx: Sequence[Array],
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    target: Target,
) -> tuple[Array, ...]:
    rest = (has_biases, dropout if train else 0.0, bidirectional, batch_first, target)
    return _run(_lstm_step, x, hx, params, *rest)


def _simple(
    x: Array,
    hx: Array,
    params: Sequence[Array],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    step: Step,
    target: Target,
) -> tuple[Array, ...]:
    rest = (has_biases, dropout if train else 0.0, bidirectional, batch_first, target)
    return _run(step, x, (hx,), params, *rest)


_TARGETS: tuple[Target, ...] = ("xla", "litert")
for _target in _TARGETS:
    lowers(aten.lstm.input, target=_target)(partial(_lstm, target=_target))
    for _op, _step in (
        (aten.gru.input, _gru_step),
        (aten.rnn_tanh.input, _tanh_step),
        (
            aten.rnn_relu.input,
            _relu_step if _target == "xla" else partial(_rnn_step, _select_relu),
        ),
    ):
        lowers(_op, target=_target)(partial(_simple, step=_step, target=_target))


@lowers(aten.lstm_cell.default)
def lstm_cell(
    x: Array,
    hx: Sequence[Array],
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
) -> tuple[Array, ...]:
    weights = Weights(w_ih, w_hh, b_ih, b_hh)
    return _lstm_step(weights, tuple(hx), weights.project_input(x))


def _cell(
    x: Array,
    hx: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None = None,
    b_hh: Array | None = None,
    *,
    step: Step,
) -> Array:
    weights = Weights(w_ih, w_hh, b_ih, b_hh)
    return step(weights, (hx,), weights.project_input(x))[0]


lowers(aten.gru_cell.default)(partial(_cell, step=_gru_step))
lowers(aten.rnn_tanh_cell.default)(partial(_cell, step=_tanh_step))
lowers(aten.rnn_relu_cell.default)(partial(_cell, step=_relu_step))
