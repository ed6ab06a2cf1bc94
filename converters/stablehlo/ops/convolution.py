"""Convolutions and transposed convolutions, channels-last inside.

XLA folds the transposes of a chain away and hoists those of kernels; LiteRT wants kernels as
OHWI, XLA as HWIO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
import torch
from jax import Array, lax

from tpu_export.converters.stablehlo.operands import spread
from tpu_export.converters.stablehlo.ops.grouped_convolution import (
    Window,
    convolve_on_cpu,
    fast_on_cpu,
)
from tpu_export.converters.stablehlo.platforms import choice_of_platform
from tpu_export.converters.stablehlo.registry import Target, lowers

aten = torch.ops.aten


def _spatial(rank: int) -> str:
    return "DHW"[3 - rank :]


def _channels_last(
    x: Array,
    kernel: Array,
    target: Target,
    pads: Sequence[tuple[int, int]],
    groups: int,
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    spread_by: Sequence[int] | None = None,
) -> Array:
    """Convolve x [N, C, ...] with kernel [O, I, ...]; spread_by dilates x."""
    rank = x.ndim - 2
    last = f"N{_spatial(rank)}C"
    layout = _spatial(rank) + "IO" if target == "xla" else f"O{_spatial(rank)}I"
    order = "OI" + _spatial(rank)
    window = Window(stride, pads, dilation, groups)
    convolve = partial(
        lax.conv_general_dilated,
        window_strides=tuple(stride),
        padding=tuple(pads),
        lhs_dilation=spread_by,
        rhs_dilation=tuple(dilation),
        dimension_numbers=(last, layout, last),
        feature_group_count=groups,
    )
    x = x.transpose(0, *range(2, x.ndim), 1)
    kernel = kernel.transpose(*(order.index(c) for c in layout))
    if target == "xla" and spread_by is None and fast_on_cpu(x, kernel, window):
        on_cpu = partial(convolve_on_cpu, window=window)
        y: Array = choice_of_platform(convolve, {"cpu": on_cpu}, (x, kernel))
    elif target == "litert" and rank == 3 and groups > 1:
        y = _each_group(partial(convolve, feature_group_count=1), x, kernel, groups)
    else:
        y = convolve(x, kernel)
    return y.transpose(0, y.ndim - 1, *range(1, y.ndim - 1))


def _each_group(
    convolve: Callable[[Array, Array], Array], x: Array, kernel: Array, groups: int
) -> Array:
    """Convolve groups of x [N, D, H, W, C] apart: LiteRT's CONV_3D knows one group.

    kernel: [O, D, H, W, C / groups].
    """
    pairs = zip(jnp.split(x, groups, -1), jnp.split(kernel, groups), strict=True)
    return jnp.concatenate([convolve(*pair) for pair in pairs], -1)


def _convolve(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int] | str,
    dilation: Sequence[int],
    groups: int,
    *,
    target: Target,
) -> Array:
    rank = weight.ndim - 2
    if x.ndim == rank + 1:
        args = (weight, bias, stride, padding, dilation, groups)
        return _convolve(x[None], *args, target=target)[0]
    dilation = spread(dilation, rank)
    y = _channels_last(
        x,
        weight,
        target,
        _pads(padding, weight.shape[2:], dilation),
        groups,
        stride=spread(stride, rank),
        dilation=dilation,
    )
    return _add_bias(y, bias)


def _pads(
    padding: Sequence[int] | str, kernel: Sequence[int], dilation: Sequence[int]
) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":  # an odd total puts the extra element at the end
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(t // 2, t - t // 2) for t in totals]
    assert not isinstance(padding, str)
    return [(p, p) for p in spread(padding, len(kernel))]


def _add_bias(y: Array, bias: Array | None) -> Array:
    return y if bias is None else y + bias.reshape(-1, *(1 for _ in y.shape[2:]))


def _transpose(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
    *,
    target: Target,
) -> Array:
    rank = weight.ndim - 2
    if x.ndim == rank + 1:
        args = (weight, bias, stride, padding, output_padding, groups, dilation)
        return _transpose(x[None], *args, target=target)[0]
    dilation, stride = spread(dilation, rank), spread(stride, rank)
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    extra = spread(output_padding, rank)
    pads = [
        (r - p, r - p + e)
        for r, p, e in zip(reach, spread(padding, rank), extra, strict=True)
    ]
    spaced: tuple[int, ...] | None = stride
    if target == "litert":
        # LiteRT gets lhs_dilation with uneven padding wrong: space the input by hand.
        x, pads, spaced = _spaced(x, stride, pads), [(0, 0)] * rank, None
    kernel = _flipped(weight, groups)
    ones = (1,) * rank
    y = _channels_last(
        x,
        kernel,
        target,
        pads,
        groups,
        stride=ones,
        dilation=dilation,
        spread_by=spaced,
    )
    return _add_bias(y, bias)


def _spaced(x: Array, stride: Sequence[int], pads: Sequence[tuple[int, int]]) -> Array:
    """Put stride - 1 zeros between elements, pad, and crop where a pad is negative."""
    config = [
        (max(a, 0), max(b, 0), s - 1) for (a, b), s in zip(pads, stride, strict=True)
    ]
    y = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (0, 0, 0), *config])
    crops = [(max(-a, 0), max(-b, 0)) for a, b in pads]
    for dim, (low, high) in enumerate(crops, start=2):
        if low or high:
            y = lax.slice_in_dim(y, low, y.shape[dim] - high, axis=dim)
    return y


def _flipped(weight: Array, groups: int) -> Array:
    """Turn a transposed kernel [I, O / groups, ...] into a plain one [O, I / groups, ...]."""
    spatial = weight.shape[2:]
    inner, outer = weight.shape[0] // groups, weight.shape[1]
    grouped = weight.reshape(groups, inner, outer, *spatial).swapaxes(1, 2)
    kernel = grouped.reshape(groups * outer, inner, *spatial)
    return jnp.flip(kernel, tuple(range(2, kernel.ndim)))


def _conv_rule(target: Target) -> Callable[..., Array]:
    def conv(
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] | str = (0,),
        dilation: Sequence[int] = (1,),
        groups: int = 1,
    ) -> Array:
        args = (stride, padding, dilation, groups)
        return _convolve(x, weight, bias, *args, target=target)

    return conv


def _conv_transpose_rule(target: Target) -> Callable[..., Array]:
    def conv_transpose(
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Sequence[int] = (1,),
        padding: Sequence[int] = (0,),
        output_padding: Sequence[int] = (0,),
        groups: int = 1,
        dilation: Sequence[int] = (1,),
    ) -> Array:
        args = (stride, padding, output_padding, groups, dilation)
        return _transpose(x, weight, bias, *args, target=target)

    return conv_transpose


def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_flags: bool,
    target: Target,
) -> Array:
    if transposed:
        args = (stride, padding, output_padding, groups, dilation)
        return _transpose(x, weight, bias, *args, target=target)
    return _convolve(x, weight, bias, stride, padding, dilation, groups, target=target)


_TARGETS: tuple[Target, ...] = ("xla", "litert")
for _target in _TARGETS:
    lowers(
        aten.conv1d.default,
        aten.conv2d.default,
        aten.conv3d.default,
        aten.conv1d.padding,
        aten.conv2d.padding,
        aten.conv3d.padding,
        target=_target,
    )(_conv_rule(_target))
    lowers(
        aten.conv_transpose1d.default,
        aten.conv_transpose2d.input,
        aten.conv_transpose3d.input,
        target=_target,
    )(_conv_transpose_rule(_target))
    lowers(
        aten.convolution.default,
        aten._convolution.default,
        aten._convolution.deprecated,
        target=_target,
    )(partial(_convolution, target=_target))
