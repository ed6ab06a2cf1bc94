"""CPU time of grouped convolutions: XLA's own, the one of the CPU's programs, and torch's.

    python benchmarks/grouped_convolution.py

One process, rounds interleaved, minimum of the rounds; prints a Markdown table of ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import torch
from jax import lax

from tpu_export.converters.stablehlo.ops.grouped_convolution import (
    Window,
    convolve_on_cpu,
)
from tpu_export.runtime.devices import XLA_CPU_OPTIONS

ROUNDS = 15
# channels, height and width, kernel, stride, groups, outputs: where they occur
CASES = {
    "MobileNetV2 3x3": (96, 56, 3, 1, 96, 96),
    "EfficientNet 5x5, stride 2": (240, 28, 5, 2, 240, 240),
    "ConvNeXt 7x7": (96, 56, 7, 1, 96, 96),
    "ResNeXt 32x4d": (128, 56, 3, 1, 32, 128),
    "two groups": (64, 56, 3, 1, 2, 64),
}


def contenders(
    c: int, hw: int, k: int, s: int, groups: int, out: int
) -> dict[str, Callable[[], object]]:
    x = np.random.default_rng(0).normal(size=(1, hw, hw, c)).astype(np.float32)
    kernel = np.random.default_rng(1).normal(size=(k, k, c // groups, out))
    kernel = kernel.astype(np.float32)
    window = Window((s, s), [(k // 2, k // 2)] * 2, (1, 1), groups)
    loop = partial(
        lax.conv_general_dilated,
        window_strides=window.stride,
        padding=window.pads,
        feature_group_count=groups,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    own = partial(convolve_on_cpu, window=window)
    compiled = [
        jax.jit(f).lower(x, kernel).compile(compiler_options=XLA_CPU_OPTIONS)
        for f in (loop, own)
    ]
    on_device = (jax.device_put(x), jax.device_put(kernel))
    tensors = (
        torch.from_numpy(x).movedim(-1, 1).contiguous(),
        torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()),
    )
    return {
        "xla": lambda: compiled[0](*on_device).block_until_ready(),
        "ours": lambda: compiled[1](*on_device).block_until_ready(),
        "torch": lambda: torch.conv2d(
            *tensors, stride=s, padding=k // 2, groups=groups
        ),
    }


def main() -> None:
    print("| convolution | ours, ms | XLA's / ours | torch's / ours |")
    print("|---|---|---|---|")
    for name, case in CASES.items():
        best: dict[str, float] = {}
        calls = contenders(*case)
        for _ in range(ROUNDS):
            for label, call in calls.items():
                start = time.perf_counter()
                call()
                spent = time.perf_counter() - start
                best[label] = min(best.get(label, spent), spent)
        ours = best["ours"]
        ratios = f"{best['xla'] / ours:.1f} | {best['torch'] / ours:.1f}"
        print(f"| {name} | {ours * 1e3:.2f} | {ratios} |")


if __name__ == "__main__":
    main()
