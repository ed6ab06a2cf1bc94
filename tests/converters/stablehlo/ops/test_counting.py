from __future__ import annotations

import jax
import pytest
import torch

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
X = torch.tensor([-1.0, 0.0, 0.1, 0.25, 0.5, 0.5, 0.999, 1.0, 3.0])
FLAT = torch.full((4,), 2.0)


@pytest.mark.parametrize("x", [X, X.double(), X.view(3, 3), FLAT, torch.zeros(0)])
@pytest.mark.parametrize("limits", [(), (0, 1), (-2, 4), (0.5, 0.5)])
@pytest.mark.parametrize("bins", [1, 4])
def test_histc(compare, x, limits, bins):
    compare(aten.histc.default, x, bins, *limits)


def test_histc_of_random_values(compare):
    compare(aten.histc.default, torch.randn(1000), 20, -2, 2)
    compare(aten.histc.default, torch.randn(1000), 20)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("minlength", [0, 3, 9])
def test_bincount(compare, dtype, minlength):
    x = torch.tensor([0, 5, 1, 1, 5, 5], dtype=dtype)
    compare(aten.bincount.default, x, None, minlength)
    compare(aten.bincount.default, x, torch.rand(6), minlength)
    compare(aten.bincount.default, x, torch.rand(6).double(), minlength)


def test_bincount_of_nothing(compare):
    compare(aten.bincount.default, torch.zeros(0, dtype=torch.int64), None, 3)


def test_bincount_of_a_computed_tensor_is_refused():
    rule = find_rule(aten.bincount.default, "xla")
    with pytest.raises(UnsupportedOptionError, match="depends on the data"):
        jax.eval_shape(rule, jax.numpy.zeros(3, "int32"))
