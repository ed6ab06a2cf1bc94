"""Bilinear resizes are LiteRT's own op where it steps as torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tpu_export.converters.litert import LiteRtModel
from tpu_export.parity.litert import to_litert

Right = Callable[..., LiteRtModel]


def resized(x: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.interpolate(x, mode="bilinear", **options)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"size": (16, 20)},
        {"size": (9, 3)},
        {"size": (8, 20)},
        {"size": (1, 5)},
        {"scale_factor": (2, 1.5)},
        {"scale_factor": 1.7, "recompute_scale_factor": True},
    ],
)
def test_a_resize_is_one_op(
    right_in_both: Right, options: dict[str, Any], corners: bool
) -> None:
    torch.manual_seed(0)
    model = right_in_both(
        lambda x: resized(x, align_corners=corners, **options), torch.randn(2, 3, 8, 10)
    )
    ops = model.report.ops["forward"]
    assert ops["RESIZE_BILINEAR"] == 1
    assert ops.keys() <= {"RESIZE_BILINEAR", "TRANSPOSE", "RESHAPE"}
    assert model.report.size < 4000  # no matrices of weights


def test_a_factor_that_sizes_do_not_tell_is_not_that_op(right_in_both: Right) -> None:
    model = right_in_both(
        lambda x: resized(x, scale_factor=1.7), torch.randn(1, 3, 8, 10)
    )
    assert "RESIZE_BILINEAR" not in model.report.ops["forward"]


def test_resizes_in_branches_and_of_several_images(right_in_both: Right) -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        both = [
            lambda x: resized(x, size=(4, 4)),
            lambda x: resized(x * 2, size=(4, 4)),
        ]
        return torch.cond(x.sum() > 0, *both, (x,))

    for x in (torch.rand(1, 2, 5, 6), -torch.rand(1, 2, 5, 6)):
        right_in_both(branches, x)
    model = right_in_both(
        lambda x, y: resized(x, size=(7, 7)) + resized(y, size=(7, 7)),
        torch.randn(1, 2, 5, 6),
        torch.randn(1, 2, 3, 3),
    )
    assert model.report.ops["forward"]["RESIZE_BILINEAR"] == 2


def test_a_resize_of_integers(tmp_path: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.UpsamplingBilinear2d(scale_factor=2), nn.Conv2d(8, 4, 1)
    )
    draw = np.random.default_rng(0)
    calls = [
        {"input": draw.standard_normal((1, 3, 12, 12), np.float32)} for _ in range(4)
    ]
    x = torch.from_numpy(calls[0]["input"])
    edge = to_litert(model.eval(), (x,), recipe="static-int8", calibration=calls)
    assert edge.report.ops["forward"]["RESIZE_BILINEAR"] == 1
    found = edge.run(input=calls[0]["input"])["output_0"]
    with torch.no_grad():
        want = model(x).numpy()
    assert np.abs(found - want).max() < 0.03 * np.abs(want).max()
