"""Tiny models of many architectures as .tflite files, right in both engines against XLA."""

from __future__ import annotations

import pytest

from tpu_export.model_zoo.architectures import BUILDERS
from tpu_export.parity.litert import to_litert

pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.zoo]


@pytest.mark.parametrize("name", BUILDERS)
def test_an_architecture_converts(name: str) -> None:
    model, inputs = BUILDERS[name]()
    to_litert(model.eval(), (), inputs)
