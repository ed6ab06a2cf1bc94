from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
EDGES = torch.tensor(
    [-INF, -100.0, -7.5, -3.0, -0.5, -0.0, 0.0, 0.5, 1, 3, 6, 21, 100, INF]
)

CASES = [
    (aten.relu.default, {}),
    (aten.relu6.default, {}),
    (aten.gelu.default, {}),
    (aten.gelu.default, {"approximate": "tanh"}),
    (aten.silu.default, {}),
    (aten.mish.default, {}),
    (aten.hardswish.default, {}),
    (aten.hardsigmoid.default, {}),
    (aten.hardtanh.default, {}),
    (aten.hardtanh.default, {"min_val": -2, "max_val": 0.5}),
    (aten.elu.default, {}),
    (aten.elu.default, {"alpha": 0.5, "scale": 2, "input_scale": 3}),
    (aten.celu.default, {"alpha": 0.7}),
    (aten.selu.default, {}),
    (aten.leaky_relu.default, {}),
    (aten.leaky_relu.default, {"negative_slope": 1.5}),
    (aten.softplus.default, {}),
    (aten.softplus.default, {"beta": 2, "threshold": 5}),
    (aten.softshrink.default, {}),
    (aten.hardshrink.default, {"lambd": 3}),
    (aten.threshold.default, {"threshold": 0.5, "value": 20}),
    (aten.log_sigmoid.default, {}),
    (aten.tanh.default, {}),
    (aten.sigmoid.default, {}),
    (aten.rrelu.default, {}),
]
INTEGER = [
    aten.relu.default,
    aten.relu6.default,
    aten.tanh.default,
    aten.sigmoid.default,
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("op", "kwargs"), CASES)
def test_pointwise(compare, op, kwargs, dtype):
    compare(op, (torch.randn(5, 7) * 4).to(dtype), **kwargs)


@pytest.mark.parametrize(("op", "kwargs"), CASES)
def test_pointwise_at_the_edges(compare, op, kwargs):
    # Of infinities torch's gelu gives NaN or not, by the vector unit of the host.
    compare(op, EDGES[1:-1] if op is aten.gelu.default else EDGES, **kwargs)


@pytest.mark.parametrize("op", INTEGER)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
def test_pointwise_of_integers(compare, op, dtype):
    compare(op, torch.arange(-3, 12).to(dtype))


@pytest.mark.parametrize(
    "x", [torch.tensor([NAN, 1.0, -1.0]), torch.zeros(0), torch.tensor(2.0)]
)
@pytest.mark.parametrize(
    "op",
    [
        aten.relu.default,
        aten.gelu.default,
        aten.hardtanh.default,
        aten.softshrink.default,
    ],
)
def test_pointwise_of_odd_tensors(compare, op, x):
    compare(op, x)


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (torch.randn(2, 3, 4), torch.randn(3)),
        (torch.randn(2, 3), torch.randn(1)),
        (torch.randn(5), torch.randn(1)),
        (torch.randn(()), torch.randn(())),
    ],
)
def test_prelu(compare, x, weight):
    compare(aten.prelu.default, x, weight)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(compare, dim):
    compare(aten.glu.default, torch.randn(4, 6, 2), dim)


def test_log_sigmoid_forward(compare):
    compare(aten.log_sigmoid_forward.default, torch.randn(4, 6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((3, 5), -1), ((3, 5), 0), ((2, 3, 4), 1), ((), 0), ((0, 3), 1), ((3, 0), 1)],
)
@pytest.mark.parametrize(
    "op", [aten.softmax.int, aten.log_softmax.int, aten._safe_softmax.default]
)
def test_softmax(compare, op, shape, dim, dtype):
    # torch's bfloat16 log-softmax rounds before it subtracts.
    tol = (1.6e-2, 1e-2) if dtype == torch.bfloat16 else None
    compare(op, (torch.randn(shape) * 3).to(dtype), dim, tol=tol)


@pytest.mark.parametrize("op", [aten._softmax.default, aten._log_softmax.default])
def test_softmax_core(compare, op):
    compare(op, torch.randn(3, 5), -1, False)


@pytest.mark.parametrize("op", [aten.softmax.int, aten.log_softmax.int])
def test_softmax_in_a_wider_dtype(compare, op):
    compare(op, torch.randn(3, 5).bfloat16(), -1, torch.float32)
    compare(op, torch.arange(6).reshape(2, 3), 1, torch.float32)


@pytest.mark.parametrize("op", [aten.softmax.int, aten._safe_softmax.default])
def test_softmax_of_hidden_rows(compare, op):
    compare(op, torch.tensor([[-INF, -INF], [-INF, 1.0]]), -1)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_a_composite_for_litert(compare, approximate):
    x = torch.randn(3, 4)
    compare(aten.gelu.default, x, approximate=approximate, target="litert")
    rule = find_rule(aten.gelu.default, "litert")
    text = (
        jax.jit(lambda y: rule(y, approximate=approximate)).lower(jnp.ones(3)).as_text()
    )
    assert "stablehlo.composite" in text
    assert f'approximate = "{approximate}"' in text


def test_hardswish_is_a_composite_for_litert(compare):
    compare(aten.hardswish.default, torch.randn(3, 4), target="litert")


def test_log_sigmoid_is_never_negative_zero(compiled_rule):
    x = torch.tensor([0.0, 1e4, INF])
    op = aten.log_sigmoid.default
    got = compiled_rule(find_rule(op, "xla"), x)
    torch.testing.assert_close(got.signbit(), op(x).signbit())
