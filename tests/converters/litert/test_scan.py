"""What the scan refuses is what docs/litert.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from litert_converter.mlir import ir
from litert_converter.mlir._mlir_libs import converter_api_ext as api

from tpu_export.converters.litert import conversion, convert
from tpu_export.converters.litert.errors import LiteRtUnsupportedOpsError
from tpu_export.converters.litert.scan import _CHECKS, REFUSED, refused
from tpu_export.exporter.capture import capture
from tpu_export.exporter.stages import lower

WINDOW = """
func.func @main(%x: tensor<1x4x9x9xf32>) -> tensor<1x4x{high}x{wide}xf32> {{
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %low) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.{body} %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }}) {{
      window_dimensions = array<i64: 1, 1, 3, {width}>,
      window_strides = array<i64: 1, 1, 2, 1>,
      padding = dense<[[0, 0], [0, 0], [{top}, 1], [0, {right}]]> : tensor<4x2xi64>
    }} : (tensor<1x4x9x9xf32>, tensor<f32>) -> tensor<1x4x{high}x{wide}xf32>
  return %y : tensor<1x4x{high}x{wide}xf32>
}}
"""
PAGE = (Path(__file__).parents[3] / "docs" / "litert.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+\.\w+)` \| (.*) \|$", PAGE, re.M))


def test_the_page_lists_what_is_refused_and_why() -> None:
    assert {op: why for op, why in ROWS.items() if op not in _CHECKS} == REFUSED
    assert set(_CHECKS) <= set(ROWS)


def test_the_page_lists_the_dtypes() -> None:
    for dtype, why in conversion._REFUSED_DTYPES.items():
        assert re.search(rf"^\| .*`{dtype}`.* \| {re.escape(why)} \|$", PAGE, re.M)


@pytest.mark.parametrize(
    ("body", "width", "top", "right", "count"),
    [
        ("maximum", 2, 1, 0, 1),
        ("add", 2, 1, 0, 0),  # LiteRT pads sums by an op of its own
        ("maximum", 1, 1, 0, 0),  # SAME on every axis
        ("maximum", 2, 1, 1, 0),
        ("maximum", 2, 0, 0, 0),  # not SAME on the padded axis
    ],
)
def test_windows_padded_partly(
    body: str, width: int, top: int, right: int, count: int
) -> None:
    high, wide = (9 + top + 1 - 3) // 2 + 1, 9 + right - width + 1
    text = WINDOW.format(
        body=body, width=width, top=top, right=right, high=high, wide=wide
    )
    assert len(refused(parse(text))) == count


def parse(text: str) -> Any:
    context = ir.Context()
    api.prepare_mlir_context(context)
    with context, ir.Location.unknown():
        return ir.Module.parse(text)


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (torch.linalg.svdvals, "custom_call"),
        (torch.linalg.eigh, "custom_call"),
        (torch.linalg.qr, "custom_call"),
        (torch.linalg.lu, "custom_call"),
        (torch.linalg.inv, "custom_call"),
        (lambda x: x + torch.rand(3), "while"),
        (lambda x: F.dropout(x, 0.5, training=True), "while"),
    ],
)
def test_refusals_name_the_line(function: Any, op: str) -> None:
    """What JAX puts into functions of its own, and what the converter cannot parse."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    program = lower(capture(Model(), (torch.eye(3),), {}), target="litert").program
    with pytest.raises(LiteRtUnsupportedOpsError) as caught:
        convert({"forward": program})
    words = str(caught.value)
    assert re.search(rf"stablehlo\.{op} at /aten\.\S+/test_scan\.py:\d+: ", words)
    assert "unknown place" not in words
