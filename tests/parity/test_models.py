"""What the Python API takes for a model."""

from __future__ import annotations

import torch

from tpu_export.exporter.capture import capture
from tpu_export.parity.models import captures


def test_captured_signatures_have_the_names_they_are_given() -> None:
    x = torch.ones(2)
    given = {n: capture(torch.nn.Identity(), (x,), {}) for n in ("prefill", "decode")}
    found = captures(given, (), None, None)
    assert {n: (c.name, c.signature.name) for n, c in found.items()} == {
        "prefill": ("prefill", "prefill"),
        "decode": ("decode", "decode"),
    }
