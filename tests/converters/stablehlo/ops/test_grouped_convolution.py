"""The CPU's own grouped convolutions, against torch and where they are used."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from tpu_export.converters.stablehlo.ops.grouped_convolution import (
    Window,
    convolve_on_cpu,
    fast_on_cpu,
)
from tpu_export.runtime.stablehlo import module_text

# spatial sizes, kernel, channels, outputs, groups, stride, padding, dilation
CASES = [
    ((9, 7), (3, 3), 6, 6, 6, (1, 1), (1, 1), (1, 1)),
    ((9, 8), (5, 3), 4, 8, 4, (2, 3), (2, 0), (1, 1)),
    ((11, 10), (3, 2), 6, 9, 3, (1, 2), (3, 1), (2, 3)),
    ((9, 9), (5, 5), 8, 4, 2, (2, 1), (0, 2), (1, 1)),
    ((20,), (4,), 5, 5, 5, (1,), (3,), (1,)),
    ((30,), (9,), 32, 16, 2, (2,), (4,), (2,)),
    ((5, 6, 4), (3, 2, 2), 4, 4, 4, (1, 2, 1), (1, 0, 1), (1, 1, 2)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_like_torch(case: Any, dtype: torch.dtype) -> None:
    spatial, size, channels, outputs, groups, stride, padding, dilation = case
    x = torch.randn(2, channels, *spatial).to(dtype)
    weight = torch.randn(outputs, channels // groups, *size).to(dtype)
    rank = len(spatial)
    conv = [nn.functional.conv1d, nn.functional.conv2d, nn.functional.conv3d][rank - 1]
    want = conv(
        x.double(), weight.double(), None, stride, padding, dilation, groups
    ).to(dtype)
    window = Window(stride, [(p, p) for p in padding], dilation, groups)
    with jax.enable_x64(True):
        last = jax.numpy.asarray(x.movedim(1, -1).double().numpy())
        kernel = jax.numpy.asarray(weight.movedim((0, 1), (-1, -2)).double().numpy())
        name = str(dtype).removeprefix("torch.")
        last, kernel = last.astype(name), kernel.astype(name)
        assert fast_on_cpu(last, kernel, window)
        got = jax.jit(partial(convolve_on_cpu, window=window))(last, kernel)
        assert got.dtype == name
        array = np.array(got.astype("float64"))
    limit = 8e-3 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(
        torch.from_numpy(array).movedim(-1, 1), want.double(), rtol=limit, atol=limit
    )


def test_kept_where_many_groups_mix_many_channels() -> None:
    x, kernel = jax.numpy.zeros((1, 8, 8, 512)), jax.numpy.zeros((3, 3, 16, 512))
    window = Window((1, 1), [(1, 1)] * 2, (1, 1), 32)
    assert not fast_on_cpu(x, kernel, window)
    assert not fast_on_cpu(x[..., :16], kernel, Window((1, 1), [(1, 1)] * 2, (1, 1), 1))


def test_only_the_cpus_program_has_it(check_module: Any) -> None:
    model = nn.Conv2d(6, 6, 3, groups=6, padding="same", stride=1)
    lowered = check_module(model, (torch.randn(2, 6, 9, 7),))
    modules = lowered.program.main.modules
    assert "feature_group_count = 6" in module_text(modules[""])
    assert "stablehlo.case" not in module_text(modules[""])
    assert "stablehlo.convolution" not in module_text(modules["cpu"])
    assert "tpu" not in modules


def test_dynamic_sizes(check_sizes: Any) -> None:
    model = nn.Conv2d(4, 8, 3, groups=4, padding=1, stride=2)
    shapes = (2, 4, 9, 7), (1, 4, 4, 7), (3, 4, 12, 7)
    check_sizes(model, {0: Dim("batch"), 2: Dim("height")}, *shapes)
