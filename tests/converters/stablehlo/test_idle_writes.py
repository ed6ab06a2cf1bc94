"""Dropout in place and in eval writes nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tpu_export.converters.stablehlo.functional import functionalize
from tpu_export.exporter.capture import capture

aten = torch.ops.aten
DROPOUTS = (F.dropout, F.dropout2d, F.alpha_dropout, F.feature_alpha_dropout)


class Classifier(torch.nn.Module):
    def __init__(self, drop: Callable[..., Any], training: bool, last: bool) -> None:
        super().__init__()
        self.drop, self.training_, self.last = drop, training, last
        self.head = torch.nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> Any:
        flat = torch.flatten(x + 1, 1)[..., None]
        kept = self.drop(flat, 0.5, self.training_, inplace=True)
        return kept if self.last else self.head(kept[..., 0])


def targets(module: torch.nn.Module, x: torch.Tensor) -> set[object]:
    program = functionalize(capture(module, (x,)).program).program
    return {node.target for node in program.graph.nodes}


@pytest.mark.parametrize("drop", DROPOUTS)
def test_the_graph_is_not_traced_again(drop: Callable[..., Any]) -> None:
    module, x = Classifier(drop, False, False).eval(), torch.randn(3, 4, 3)
    found = targets(module, x)
    assert aten.flatten.using_ints in found  # torch's decomposition has a view
    assert not any("dropout" in str(target) for target in found)


def test_in_training_it_writes() -> None:
    module, x = Classifier(F.dropout, True, False).eval(), torch.randn(3, 4, 3)
    assert aten.flatten.using_ints not in targets(module, x)


@pytest.mark.parametrize("last", [False, True])
def test_the_result_is_torchs(last: bool, run_module: Any) -> None:
    module, x = Classifier(F.dropout, False, last).eval(), torch.randn(3, 4, 3)
    _, _, program = run_module(module, (x,))
    with torch.no_grad():
        expected = module(x).numpy()
    np.testing.assert_allclose(program(x=x.numpy()), expected, rtol=1e-6)
