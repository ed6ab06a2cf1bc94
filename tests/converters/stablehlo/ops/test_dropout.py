from __future__ import annotations

import jax
import numpy as np
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
OPS = [
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
]


@pytest.mark.parametrize("op", OPS)
def test_eval_is_the_identity(compare, op):
    compare(op, torch.randn(3, 4), 0.5, False)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_certain_dropout(compare, op, p):
    compare(op, torch.randn(3, 4), p, True)


def test_native_dropout_eval(compare):
    compare(aten.native_dropout.default, torch.randn(3, 4), 0.5, False)


@pytest.mark.parametrize("op", OPS)
def test_training_keeps_the_mean(op):
    x = jax.numpy.ones((400, 50, 2))
    y = np.asarray(find_rule(op, "xla")(x, 0.25, True))
    assert len(np.unique(y)) == 2
    if op in OPS[:2]:
        assert y.mean() == pytest.approx(1, abs=0.02)
    if op in (OPS[1], OPS[3]):
        assert (y == y[..., :1]).all()
