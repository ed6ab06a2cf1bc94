from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from jax import export

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten


def r(*shape):
    return torch.randn(*shape)


@pytest.mark.parametrize(
    ("x", "pad", "value"),
    [
        (r(2, 3), [1, 2], 0),
        (r(2, 3, 4), [1, 0, 2, 3], 1.5),
        (r(2, 5, 6), [-1, 2, 1, -2], -1),
        (r(2, 5, 6), [-1, -2], 7),
        (torch.arange(6).reshape(2, 3), [1, 1, 0, 1], 3),
        (torch.ones(2, 3, dtype=torch.bool), [1, 1], False),
        (r(2, 3).bfloat16(), [0, 1], float("-inf")),
        (r(2, 0), [2, 1], 1),
        (r(2, 3), [], 1),
    ],
)
def test_constant(compare, x, pad, value):
    compare(aten.constant_pad_nd.default, x, pad, value)
    compare(aten.pad.default, x, pad, "constant", float(value))


IMAGES = [
    (r(2, 3, 6), [2, 1]),
    (r(3, 6), [0, 3]),
    (r(2, 3, 6, 5), [1, 2, 3, 0]),
    (r(2, 3, 6, 5, 4), [1, 2, 3, 0, 2, 1]),
]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(("x", "pad"), IMAGES)
def test_extended(compare, x, pad, mode):
    if mode != "circular" or x.ndim == len(pad) // 2 + 2:
        compare(aten.pad.default, x, pad, mode)


@pytest.mark.parametrize("name", ["reflection", "replication"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_named(compare, name, rank):
    x, pad = IMAGES[rank if rank > 1 else 0]
    compare(getattr(aten, f"{name}_pad{rank}d").default, x, pad)


@pytest.mark.parametrize(
    ("x", "pad"), [(r(2, 3, 6), [-2, 1]), (r(2, 3, 6, 5), [1, -2, 0, 3])]
)
def test_negative_pads_crop(compare, x, pad):
    compare(aten.pad.default, x, pad, "replicate")
    compare(aten.pad.default, x, pad, "circular")


def test_a_crop_of_the_whole_axis_still_replicates(compare):
    compare(aten.pad.default, r(5, 3, 4, 4), [-4, 5, 0, 0], "replicate")


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_symbolic_axis(mode):
    (size,) = export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((2, 3, size), np.float32)
    rule = find_rule(aten.pad.default, "xla")
    run = export.export(jax.jit(lambda x: rule(x, [2, 1], mode)))(shape)
    x = r(2, 3, 5)
    got = torch.tensor(np.asarray(run.call(x.numpy())))
    torch.testing.assert_close(got, aten.pad.default(x, [2, 1], mode))
