from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch

from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
TARGETS = ["xla", "litert"]
TOL = (1e-4, 1e-4)


def r(*shape):
    return torch.randn(*shape)


def tail(bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1):
    return bias, list(stride), padding, list(dilation), groups


CONV = [
    (aten.conv1d.default, r(2, 3, 9), r(4, 3, 3), tail(r(4))),
    (aten.conv1d.default, r(2, 3, 70), r(4, 3, 50), tail(None, (3,), [25])),
    (aten.conv1d.default, r(3, 9), r(4, 3, 3), tail(r(4))),
    (aten.conv1d.default, r(2, 4, 9), r(6, 2, 3), tail(None, groups=2)),
    (aten.conv1d.padding, r(2, 3, 9), r(4, 3, 4), tail(r(4), padding="same")),
    (aten.conv1d.padding, r(2, 3, 9), r(4, 3, 4), tail(padding="valid")),
    (aten.conv2d.default, r(2, 3, 9, 8), r(4, 3, 3, 3), tail(r(4), padding=[1, 1])),
    (aten.conv2d.default, r(2, 3, 9, 8), r(4, 3, 3, 2), tail(None, (2, 1), [0, 1])),
    (aten.conv2d.default, r(2, 3, 9, 8), r(4, 3, 3, 3), tail(dilation=(2, 1))),
    (aten.conv2d.default, r(2, 6, 9, 8), r(6, 1, 3, 3), tail(r(6), groups=6)),
    (aten.conv2d.default, r(2, 6, 9, 8), r(12, 1, 3, 3), tail(groups=6)),
    (aten.conv2d.default, r(2, 6, 9, 8), r(4, 3, 3, 3), tail(groups=2)),
    (aten.conv2d.default, r(3, 9, 8), r(4, 3, 1, 1), tail(r(4))),
    (aten.conv2d.default, r(0, 3, 9, 8), r(4, 3, 1, 1), tail(r(4))),
    (aten.conv2d.padding, r(2, 3, 9, 8), r(4, 3, 2, 3), tail(padding="same")),
    (aten.conv2d.padding, r(2, 3, 9, 8), r(4, 3, 2, 3), tail(None, (2, 2), "valid")),
    (
        aten.conv2d.padding,
        r(2, 3, 9, 8),
        r(4, 3, 4, 3),
        tail(None, padding="same", dilation=(3, 1)),
    ),
    (
        aten.conv3d.default,
        r(2, 3, 5, 6, 4),
        r(4, 3, 3, 2, 1),
        tail(r(4), padding=[1, 0, 2]),
    ),
    (
        aten.conv3d.default,
        r(1, 4, 5, 6, 4),
        r(4, 2, 2, 2, 2),
        tail(None, (2, 1, 1), groups=2),
    ),
    (aten.conv3d.padding, r(1, 3, 5, 6, 4), r(4, 3, 2, 3, 2), tail(padding="same")),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("op", "x", "weight", "rest"), CONV)
def test_conv(compare, op, x, weight, rest, target):
    compare(op, x, weight, *rest, tol=TOL, target=target)


# stride, padding, output_padding, groups, dilation
TRANSPOSED = [
    (aten.conv_transpose1d.default, r(2, 4, 5), r(4, 3, 3), ([1], [0], [0], 1, [1])),
    (aten.conv_transpose1d.default, r(2, 4, 5), r(4, 3, 3), ([3], [1], [2], 1, [1])),
    (aten.conv_transpose1d.default, r(2, 4, 5), r(4, 3, 2), ([4], [0], [3], 2, [2])),
    (aten.conv_transpose1d.default, r(4, 5), r(4, 3, 2), ([2], [1], [0], 1, [1])),
    (aten.conv_transpose1d.default, r(1, 2, 5), r(2, 3, 1), ([2], [1], [1], 1, [1])),
    (
        aten.conv_transpose2d.input,
        r(2, 4, 5, 4),
        r(4, 6, 3, 3),
        ([2, 2], [1, 1], [0, 0], 1, [1, 1]),
    ),
    (
        aten.conv_transpose2d.input,
        r(2, 6, 5, 4),
        r(6, 2, 4, 3),
        ([2, 3], [1, 0], [1, 2], 2, [1, 1]),
    ),
    (
        aten.conv_transpose2d.input,
        r(2, 6, 5, 4),
        r(6, 1, 3, 3),
        ([2, 1], [1, 2], [1, 0], 6, [1, 2]),
    ),
    (
        aten.conv_transpose3d.input,
        r(1, 2, 3, 4, 3),
        r(2, 3, 2, 3, 2),
        ([2, 1, 2], [1, 0, 0], [1, 0, 1], 1, [1, 1, 1]),
    ),
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("op", "x", "weight", "rest"), TRANSPOSED)
def test_conv_transpose(compare, op, x, weight, rest, target):
    groups = rest[3]
    for bias in (None, r(weight.shape[1] * groups)):
        compare(op, x, weight, bias, *rest, tol=TOL, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution(compare, transposed, target):
    x, weight, extra = r(2, 4, 7, 6), r(4, 4, 3, 3), [1, 1] if transposed else [0, 0]
    rest = ([2, 2], [1, 1], [1, 1], transposed, extra, 1)
    compare(aten.convolution.default, x, weight, r(4), *rest, tol=TOL, target=target)
    flags = (False, False, True, True)
    compare(
        aten._convolution.default,
        x,
        weight,
        None,
        *rest,
        *flags,
        tol=TOL,
        target=target,
    )


def test_bfloat16(compare):
    x, weight = r(1, 8, 6, 6).bfloat16(), r(4, 8, 3, 3).bfloat16()
    compare(aten.conv2d.default, x, weight, r(4).bfloat16(), tol=(2e-2, 1e-1))


@pytest.mark.parametrize(
    ("target", "layout"), [("xla", "[0, 1, i, o]"), ("litert", "[o, 0, 1, i]")]
)
def test_kernels_lie_as_the_target_wants_them(target, layout):
    rule = find_rule(aten.conv2d.default, target)
    text = jax.jit(rule).lower(jnp.ones((1, 3, 5, 5)), jnp.ones((4, 3, 3, 3))).as_text()
    assert f"[b, 0, 1, f]x{layout}->[b, 0, 1, f]" in text


def test_litert_gets_no_dilated_input():
    rule = find_rule(aten.conv_transpose2d.input, "litert")
    run = jax.jit(lambda x, w: rule(x, w, None, [2, 2], [1, 1], [1, 1]))
    text = run.lower(jnp.ones((1, 3, 5, 5)), jnp.ones((3, 4, 3, 3))).as_text()
    assert "stablehlo.pad" in text
    assert "lhs_dilat" not in text.replace("lhs_dilate = [1, 1]", "")
