"""Ops that the converter or the runtime has not, or has wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from tpu_export.converters.litert.selftest.entry import (
    DIES,
    REFUSED,
    RIGHT,
    UNRUNNABLE,
    WRONG,
    Entry,
    entry,
    normal,
    whole,
)

_ROWS = normal(2, 7)
_LINE = normal(7)
_SQUARE = normal(3, 3)
_IMAGE = normal(1, 4, 9, 9)
_KERNEL: Any = normal(6, 4, 3, 3, seed=1)
_PLACES = whole(1, 3)
_LOW = np.float32(-np.inf)
Pads = Sequence[tuple[int, int]]


def _convolved(x: Array, pads: Pads, dilation: Sequence[int] = (1, 1)) -> Array:
    names = ("NCHW", "OIHW", "NCHW")
    return lax.conv_general_dilated(
        x, _KERNEL, (1, 1), pads, dilation, dimension_numbers=names
    )


def _transposed(low: int, high: int) -> Callable[..., Any]:
    return lambda x: _convolved(x, [(low, high)] * 2, (2, 2))


def _interior(x: Array) -> Array:
    spread = [(0, 0, 0), (0, 0, 0), (1, 2, 1), (1, 2, 1)]
    return _convolved(lax.pad(x, np.float32(0), spread), [(0, 0)] * 2)


def _windows(window: tuple[int, int], pads: Pads) -> Callable[..., Any]:
    sizes = ((1, 1, *window), (1, 1, 2, 2), [(0, 0), (0, 0), *pads])
    return lambda x: lax.reduce_window(x, _LOW, lax.max, *sizes)


def _padded_before(x: Array) -> Any:
    x = lax.pad(x, _LOW, [(0, 0, 0), (0, 0, 0), (1, 1, 0), (0, 0, 0)])
    return _windows((3, 2), [(0, 0), (0, 0)])(x)


def _with_indices(x: Array) -> Any:
    places = lax.broadcasted_iota(jnp.int32, x.shape, 3)

    def best(a: Any, b: Any) -> Any:
        first = a[0] >= b[0]
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    sizes = ((1, 1, 2, 2), (1, 1, 2, 2), [(0, 0)] * 4)
    return lax.reduce_window((x, places), (_LOW, np.int32(0)), best, *sizes)


def _positive(x: Array) -> Any:
    return x @ x.T + 3 * jnp.eye(3, dtype=x.dtype)


def _solved(x: Array) -> Array:
    return lax.linalg.triangular_solve(_positive(x), x, left_side=True, lower=True)


_SCAN = "scan"
OPS: tuple[Entry, ...] = (
    entry("sort", lax.sort, (_ROWS,), UNRUNNABLE, "scan; sorts rank by counting"),
    entry(
        "argsort",
        lambda x: jnp.argsort(x, -1),
        (_ROWS,),
        UNRUNNABLE,
        "scan; sorts rank by counting",
    ),
    entry(
        "top_k", lambda x: lax.top_k(x, 3), (_ROWS,), RIGHT, "scan; rounds of argmax"
    ),
    entry(
        "top_k of NaN, a composite",
        lambda x: lax.top_k(x, 3),
        (np.array([[1, np.nan, 3, 5, 2]], np.float32),),
        WRONG,
        "scan; rounds of argmax",
    ),
    entry(
        "scatter",
        lambda x, i: x.at[i].set(1.0),
        (_LINE, _PLACES),
        RIGHT,
        "scan; writes by comparison",
    ),
    entry(
        "scatter of rows",
        lambda x, i, y: x.at[:, i].set(y),
        (normal(2, 7, 3), _PLACES, normal(2, 2, 3, seed=1)),
        RIGHT,
        "scan; writes by comparison",
    ),
    entry(
        "scatter-add",
        lambda x, i: x.at[i].add(1.0),
        (_LINE, _PLACES),
        UNRUNNABLE,
        "scan; writes by comparison",
    ),
    entry(
        "scatter-max",
        lambda x, i: x.at[i].max(0.5),
        (_LINE, _PLACES),
        UNRUNNABLE,
        "scan; writes by comparison",
    ),
    entry(
        "while of a known count",
        lambda x: lax.fori_loop(0, 5, lambda i, c: c * 1.5 + i, x),
        (_LINE,),
        REFUSED,
        _SCAN,
    ),
    entry(
        "while of an unknown count",
        lambda x: lax.while_loop(lambda c: jnp.sum(c) < 10, lambda c: c + 1.0, x),
        (_LINE,),
        REFUSED,
        _SCAN,
    ),
    entry(
        "custom call",
        lambda x: jnp.linalg.cholesky(_positive(x)),
        (_SQUARE,),
        REFUSED,
        _SCAN,
    ),
    entry(
        "cholesky",
        lambda x: jnp.linalg.cholesky(_positive(x)),
        (_SQUARE,),
        REFUSED,
        _SCAN,
        platform="tpu",
    ),
    entry("triangular solve", _solved, (_SQUARE,), REFUSED, _SCAN, platform="tpu"),
    entry("fft", lambda x: jnp.abs(jnp.fft.fft(x)), (_LINE,), REFUSED, _SCAN),
    entry(
        "complex", lambda x: jnp.real(lax.complex(x, x) ** 2), (_LINE,), REFUSED, _SCAN
    ),
    entry(
        "rng bits",
        lambda key: lax.rng_bit_generator(key, (3,))[1],
        (np.arange(4, dtype=np.uint32),),
        RIGHT,
        _SCAN,
    ),
    entry(
        "transposed convolution, equal pads", _transposed(2, 2), (_IMAGE,), RIGHT, _SCAN
    ),
    entry(
        "transposed convolution, pad 1", _transposed(1, 1), (_IMAGE,), REFUSED, _SCAN
    ),
    entry(
        "transposed convolution, unequal pads",
        _transposed(1, 2),
        (_IMAGE,),
        WRONG,
        "scan; a pad and a plain convolution",
    ),
    entry(
        "transposed convolution, output padding",
        _transposed(2, 3),
        (_IMAGE,),
        REFUSED,
        "scan; a pad and a plain convolution",
    ),
    entry(
        "interior pad, plain convolution",
        _interior,
        (_IMAGE,),
        RIGHT,
        "relied on by transposed convolutions",
    ),
    entry(
        "max windows padded on one axis",
        _windows((3, 2), [(1, 1), (0, 0)]),
        (_IMAGE,),
        (WRONG, DIES),
        "scan; pooling_litert pads before",
    ),
    entry(
        "max windows padded on both axes",
        _windows((3, 3), [(1, 1), (1, 1)]),
        (_IMAGE,),
        RIGHT,
        "relied on by max pools",
    ),
    entry(
        "pad, then max windows",
        _padded_before,
        (_IMAGE,),
        RIGHT,
        "relied on by max pools",
    ),
    entry(
        "max windows with indices",
        _with_indices,
        (_IMAGE,),
        UNRUNNABLE,
        "pooling_litert stacks the windows",
    ),
    entry(
        "gradient of max windows",
        jax.grad(lambda x: jnp.sum(_windows((2, 2), [(0, 0), (0, 0)])(x))),
        (_IMAGE,),
        REFUSED,
        "the converter's own refusal",
    ),
    entry(
        "running logsumexp",
        lambda x: lax.cumlogsumexp(x, 1),
        (_ROWS,),
        UNRUNNABLE,
        "the trial in both engines",
    ),
    entry("running sum", lambda x: jnp.cumsum(x, 1), (_ROWS,), RIGHT, "relied on"),
    entry(
        "gather out of bounds, clipped",
        lambda x, i: jnp.take(x, i, axis=1, mode="clip"),
        (_ROWS, whole(0, 6, 9, -3)),
        UNRUNNABLE,
        "gather's rule for LiteRT",
    ),
    entry(
        "gather along an axis",
        lambda x, i: jnp.take_along_axis(x, i, 1),
        (_ROWS, np.array([[0, 6], [2, 3]], np.int32)),
        RIGHT,
        "relied on by gather's rule",
    ),
    entry(
        "dynamic slice beyond the end",
        lambda x, i: lax.dynamic_slice(x, (i,), (3,)),
        (_LINE, np.int32(6)),
        RIGHT,
        "relied on",
    ),
    entry(
        "convolution with batch groups",
        lambda x: lax.conv_general_dilated(
            x, _KERNEL, (1, 1), "SAME", batch_group_count=2
        ),
        (normal(2, 4, 6, 6),),
        REFUSED,
        "the converter's own refusal",
    ),
)
