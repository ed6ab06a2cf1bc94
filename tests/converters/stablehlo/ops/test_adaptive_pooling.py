from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from jax import export

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
CASES = [
    (1, (2, 3, 10), [1]),
    (1, (3, 10), [4]),
    (1, (2, 3, 100), [48]),
    (2, (2, 3, 8, 6), [1, 1]),
    (2, (2, 3, 8, 6), [4, 3]),
    (2, (2, 3, 7, 5), [3, 4]),
    (2, (3, 4, 5), [6, 7]),
    (2, (2, 3, 7, 5), [7, 5]),
    (3, (2, 3, 5, 6, 7), [2, 3, 4]),
]


@pytest.mark.parametrize(("rank", "shape", "out"), CASES)
def test_adaptive_pool(compare, rank, shape, out):
    x = torch.randn(*shape)
    compare(getattr(aten, f"adaptive_avg_pool{rank}d").default, x, out)
    compare(getattr(aten, f"adaptive_max_pool{rank}d").default, x, out)


def test_bfloat16(compare):
    x = torch.randn(2, 3, 7, 5).bfloat16()
    compare(aten.adaptive_avg_pool2d.default, x, [3, 1])


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize(("size", "out"), [(100, 48), (9, 4)])
def test_what_is_not_finite_stays_in_its_windows(compare, value, size, out):
    x = torch.randn(2, 3, size)
    x[0, 1, 5] = x[1, 2, -1] = value
    compare(aten.adaptive_avg_pool1d.default, x, [out])


def test_ties_give_the_first_place(compare):
    compare(aten.adaptive_max_pool2d.default, torch.zeros(1, 1, 5, 5), [2, 3])


def test_symbolic_sizes():
    size = export.symbolic_shape("n")[0]
    rule = find_rule(aten.adaptive_avg_pool2d.default, "xla")
    shape = jax.ShapeDtypeStruct((1, 2, 2 * size, size), np.float32)
    run = export.export(jax.jit(lambda x: rule(x, [2, 3])))(shape)
    x = torch.randn(1, 2, 14, 7)
    got = torch.tensor(np.asarray(run.call(x.numpy())))
    torch.testing.assert_close(got, aten.adaptive_avg_pool2d.default(x, [2, 3]))


def test_max_unpool(compare):
    values, indices = aten.max_pool2d_with_indices.default(
        torch.randn(2, 3, 6, 8), [2, 2]
    )
    compare(aten.max_unpool2d.default, values, indices, [6, 8])
    values, indices = aten.max_pool3d_with_indices.default(
        torch.randn(1, 2, 4, 6, 8), [2, 2, 2]
    )
    rest = ([4, 6, 8], [2, 2, 2], [0, 0, 0])
    compare(aten.max_unpool3d.default, values, indices, *rest)
