from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch
from torch import nn

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
TOL = (1e-4, 1e-5)
KINDS = {
    "lstm": (nn.LSTM, aten.lstm.input),
    "gru": (nn.GRU, aten.gru.input),
    "tanh": (nn.RNN, aten.rnn_tanh.input),
    "relu": (lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k), aten.rnn_relu.input),
}
OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
    {"bias": False, "bidirectional": True},
    {"num_layers": 2, "dropout": 0.5},
]


@pytest.mark.parametrize("target", ["xla", "litert"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_layer(compare, kind, options, target):
    make, op = KINDS[kind]
    run(compare, make(4, 5, **options).eval(), op, target, kind == "lstm")


@pytest.mark.parametrize("target", ["xla", "litert"])
def test_projected_lstm(compare, target):
    net = nn.LSTM(4, 5, num_layers=2, bidirectional=True, proj_size=3).eval()
    run(compare, net, aten.lstm.input, target, True)


def run(compare, net, op, target, has_cell):
    ways = 2 if net.bidirectional else 1
    layers = net.num_layers * ways
    x = torch.randn(3, 6, 4) if net.batch_first else torch.randn(6, 3, 4)
    h = torch.randn(layers, 3, net.proj_size or 5)
    states = [h, torch.randn(layers, 3, 5)] if has_cell else h
    params = [p.detach() for p in net._flat_weights]
    rest = (
        net.bias,
        net.num_layers,
        net.dropout,
        False,
        net.bidirectional,
        net.batch_first,
    )
    compare(op, x, states, params, *rest, tol=TOL, target=target)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("cell", "op"),
    [(nn.GRUCell, aten.gru_cell.default), (nn.RNNCell, aten.rnn_tanh_cell.default)],
)
def test_cell(compare, cell, op, bias):
    params = [p.detach() for p in cell(4, 5, bias=bias).parameters()]
    compare(op, torch.randn(3, 4), torch.randn(3, 5), *params, tol=TOL)


def test_lstm_cell(compare):
    params = [p.detach() for p in nn.LSTMCell(4, 5).parameters()]
    state = [torch.randn(3, 5), torch.randn(3, 5)]
    compare(aten.lstm_cell.default, torch.randn(3, 4), state, *params, tol=TOL)


@pytest.mark.parametrize(("target", "loops"), [("xla", True), ("litert", False)])
def test_only_xla_gets_a_loop(target, loops):
    rule = find_rule(aten.gru.input, target)
    params = [jnp.ones((15, 4)), jnp.ones((15, 5)), jnp.ones(15), jnp.ones(15)]
    rest = (True, 1, 0.0, False, False, False)
    fn = jax.jit(lambda x, h: rule(x, h, params, *rest))
    text = fn.lower(jnp.ones((6, 3, 4)), jnp.ones((1, 3, 5))).as_text()
    assert ("stablehlo.while" in text) == loops
