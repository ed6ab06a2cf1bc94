from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from jax import export

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
TOL = (1e-4, 1e-4)
SHAPES = {1: (2, 3, 7), 2: (2, 3, 7, 6), 3: (1, 2, 4, 5, 3)}
SIZES = {
    1: [[14], [5], [1], [7]],
    2: [[14, 18], [5, 3], [1, 1], [7, 13]],
    3: [[8, 10, 6], [3, 7, 4]],
}
FACTORS = [2.0, 0.5, 1.1, 1.3, 2.7]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["upsample_nearest{}d", "_upsample_nearest_exact{}d"])
def test_nearest(compare, name, rank):
    packet = getattr(aten, name.format(rank))
    x = torch.randn(*SHAPES[rank])
    for size in SIZES[rank]:
        compare(packet.default, x, size)
        compare(packet.vec, x, size, None)
    for factor in FACTORS:
        compare(packet.vec, x, None, [factor] * rank)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("upsample_linear1d", 1),
        ("upsample_bilinear2d", 2),
        ("upsample_trilinear3d", 3),
        ("upsample_bicubic2d", 2),
        ("_upsample_bilinear2d_aa", 2),
        ("_upsample_bicubic2d_aa", 2),
    ],
)
@pytest.mark.parametrize("align_corners", [True, False])
def test_interpolated(compare, name, rank, align_corners):
    packet = getattr(aten, name)
    x = torch.randn(*SHAPES[rank])
    for size in SIZES[rank]:
        compare(packet.default, x, size, align_corners, tol=TOL)
        compare(packet.vec, x, size, align_corners, None, tol=TOL)
    for factor in FACTORS:
        factors = [factor] * rank
        compare(packet.vec, x, None, align_corners, factors, tol=TOL)


def test_scale_factors_are_floored(compare):
    x = torch.randn(1, 1, 88, 4)
    compare(aten.upsample_bilinear2d.vec, x, None, False, [120 / 88] * 2, tol=TOL)
    compare(aten.upsample_nearest2d.vec, x, None, [120 / 88] * 2)


def test_bfloat16(compare):
    x = torch.randn(1, 2, 5, 6).bfloat16()
    compare(aten.upsample_bilinear2d.vec, x, [9, 11], False, None, tol=(2e-2, 2e-2))


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d"])
def test_symbolic_sizes(name):
    size = export.symbolic_shape("n")[0]
    op = getattr(aten, name).vec
    rule = find_rule(op, "xla")
    shape = jax.ShapeDtypeStruct((1, 2, size, 5), np.float32)
    run = export.export(jax.jit(lambda x: rule(x, None, False, [2.0, 2.0])))(shape)
    x = torch.randn(1, 2, 7, 5)
    got = torch.tensor(np.asarray(run.call(x.numpy())))
    torch.testing.assert_close(
        got, op(x, None, False, [2.0, 2.0]), rtol=1e-4, atol=1e-4
    )
