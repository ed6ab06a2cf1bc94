from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from jax import export

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
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


IMAGES = [
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
]
ODD = [torch.inf, -torch.inf, torch.nan]


@pytest.mark.parametrize("name", ["upsample_linear1d", *IMAGES])
@pytest.mark.parametrize("align_corners", [True, False])
def test_what_is_not_finite_stays_where_it_is_read(compare, name, align_corners):
    """Torch reads neighbours by a weight of 0 too, which gives NaN."""
    rank = 1 if "1d" in name else 2
    x = torch.randn(1, 4, *[6] * rank)
    for channel, values in enumerate([ODD[:1], ODD[1:2], ODD[2:], ODD[:2]]):
        for step, value in enumerate(values):
            x[(0, channel, *[2 + step] * rank)] = value
    x[(0, 0, *[5] * rank)] = torch.inf
    for size in (5, 9, 11):
        compare(getattr(aten, name).default, x, [size] * rank, align_corners, tol=TOL)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("align_corners", [True, False])
def test_uint8_is_torch_s_fixed_point(compare, name, align_corners):
    packet = getattr(aten, name)
    for height, width in [(7, 6), (33, 20), (1, 5), (224, 200)]:
        x = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
        for size in [[14, 18], [5, 3], [1, 2], [7, 13], [64, 64]]:
            compare(packet.default, x, size, align_corners)
            compare(packet.default, x, size, align_corners, 2.1, 0.7)
        for factor in FACTORS[2:]:
            compare(packet.vec, x, None, align_corners, [factor] * 2)


def test_uint8_of_many_channels_is_rounded_alike(compare):
    x = torch.randint(0, 256, (1, 6, 9, 8), dtype=torch.uint8)
    compare(aten.upsample_bicubic2d.vec, x, [20, 5], False, None)


def test_uint8_from_very_many_pixels(compare):
    x = torch.randint(250, 256, (1, 1, 3, 1200), dtype=torch.uint8)
    compare(aten._upsample_bilinear2d_aa.vec, x, [3, 2], False, None)


def test_a_window_beyond_the_image_gives_zeros():
    """torch leaves uninitialized memory there, so only the windows inside compare."""
    x = torch.rand(1, 1, 4, 4)
    op = aten._upsample_bilinear2d_aa.default
    got = torch.tensor(
        np.asarray(find_rule(op, "xla")(x.numpy(), [6, 6], False, 0.3, 0.3))
    )
    want = op(x, [6, 6], False, 0.3, 0.3)
    torch.testing.assert_close(
        got[..., :2, :2], want[..., :2, :2], rtol=1e-4, atol=1e-4
    )
    assert not got[..., 2:, :].any()
    assert not got[..., 2:].any()


def test_what_torch_does_not_interpolate_is_refused():
    rule = find_rule(aten.upsample_bilinear2d.vec, "xla")
    with pytest.raises(UnsupportedOptionError, match="int32"):
        rule(np.zeros((1, 1, 4, 4), np.int32), [2, 2], False, None)


@pytest.mark.parametrize("name", [*IMAGES, "upsample_nearest2d"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
@pytest.mark.parametrize("factors", [[2.0, 2.0], [1.25, 2.0]])
def test_symbolic_sizes(name, dtype, factors):
    """3 * 1.25 is 3: such an axis is copied, which is known when the program runs."""
    size = export.symbolic_shape("n")[0]
    op = getattr(aten, name).vec
    given = (None, factors) if "nearest" in name else (None, False, factors)
    rule = find_rule(op, "xla")
    x = (torch.rand(1, 2, 30, 5) * 255).to(dtype)
    shape = jax.ShapeDtypeStruct((1, 2, size, 5), x.numpy().dtype)
    with jax.enable_x64(True):
        run = export.export(jax.jit(lambda x: rule(x, *given)))(shape)
    for height in (3, 7, 30):
        want = op(part := x[:, :, :height], *given)
        got = torch.tensor(np.asarray(run.call(part.numpy())))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-2)
