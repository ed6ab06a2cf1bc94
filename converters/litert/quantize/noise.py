"""What a grid of 8 bits for a whole activation leaves of it, on calibration data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.graph import Graph, Scale
from tpu_export.converters.litert.isolate import tapped, tensor_values

Values: TypeAlias = Mapping[int, Sequence[Array]]
_INT8 = np.dtype("int8")
_STEPS = 255
_ROWS = 256  # of all calls that a product is looked at on
_LEAST_ROW = 8  # elements; fewer say nothing of how far channels are apart
# Grids that the runtime's kernels are written for: scale and zero point.
_FIXED = {"SOFTMAX": (1 / 256, -128), "LOGISTIC": (1 / 256, -128), "TANH": (1 / 128, 0)}


def float_values(graph: Graph, calls: Sequence[Mapping[str, Array]]) -> Values:
    """Run a float file; returns its activations in float32, an array for each call."""
    runs = tensor_values(tapped(graph), calls)
    found = {t: [run[t] for run in runs] for t in (runs[0] if runs else ())}
    found |= {t: [np.asarray(c[n]) for c in calls] for n, t in graph.inputs.items()}
    return {t: v for t, v in found.items() if graph.is_float(t)}


def snr_left(graph: Graph, values: Values) -> dict[int, float]:
    """Return what int8 leaves of each activation, in decibels of signal to noise.

    It is that of the median row (the last axis: a token's or pixel's channels), as rows of
    large values hide what becomes of all others. Rows of zeros do not count; of what is
    not finite nothing is left.
    """
    fixed = {n.outputs[0]: _FIXED[n.name] for n in graph.nodes if n.name in _FIXED}
    return {
        t: _median_row(v, Scale(*fixed[t], _INT8) if t in fixed else grid(v))
        if all(np.isfinite(x).all() for x in v)
        else -math.inf
        for t, v in values.items()
    }


def product_left(
    values: Sequence[Array], weight: Array, *, of_rows: bool = False
) -> float:
    """Return what int8 inputs leave of the median row of a product, in decibels.

    Args:
        values: inputs [..., in] of each call; weight: [out, in], exact here.
        of_rows: each row has a grid of its own, as dynamic kernels have it.
    """
    rows = np.concatenate([v.reshape(-1, v.shape[-1]) for v in values])
    rows = rows[:: max(1, len(rows) // _ROWS)]
    if of_rows:
        step = np.abs(rows).max(1, keepdims=True) / 127
        lost = np.rint(rows / np.where(step, step, 1)) * step - rows
    else:
        scale = grid(values)
        lost = scale.value(scale.quantized(rows)) - rows
    signal, noise = (np.square(x @ weight.T).sum(1) for x in (rows, lost))
    ratio = noise[signal > 0] / signal[signal > 0]
    middle = float(np.median(ratio)) if ratio.size else 0.0
    return -10 * math.log10(middle) if middle else math.inf


def grid(values: Sequence[Array]) -> Scale:
    """Return the int8 grid from the least to the greatest value, and 0."""
    low = min(0.0, *(float(v.min(initial=0)) for v in values))
    high = max(0.0, *(float(v.max(initial=0)) for v in values))
    scale = (high - low) / _STEPS or 1.0
    return Scale(scale, round(-128 - low / scale), _INT8)


def together(decibels: Sequence[float]) -> float:
    """Return what is left after roundings one after another: their noises add up.

    >>> round(together([40.0, 40.0]), 1)
    37.0
    """
    noise = sum(10 ** (-d / 10) for d in decibels)
    return -10 * math.log10(noise) if noise else math.inf


def _median_row(values: Sequence[Array], scale: Scale) -> float:
    rows = [_noise_of_rows(v, scale) for v in values if v.size]
    noise = np.concatenate([*rows, np.empty(0)])
    if not noise.size or not (middle := float(np.median(noise))):
        return math.inf
    return -10 * math.log10(middle)


def _noise_of_rows(value: Array, scale: Scale) -> Array:
    width = value.shape[-1] if value.ndim else 1
    rows = value.reshape(-1, width if width >= _LEAST_ROW else value.size)
    lost = scale.value(scale.quantized(rows)) - rows
    signal = np.square(rows, dtype=np.float64).sum(1)
    is_known = signal > 0
    noise: Array = np.square(lost, dtype=np.float64).sum(1)[is_known] / signal[is_known]
    return noise
