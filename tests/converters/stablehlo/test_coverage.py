from __future__ import annotations

import pytest
import torch
from torch import nn

from tpu_export.converters.stablehlo.coverage import UnsupportedOpsError, coverage
from tpu_export.converters.stablehlo.decompose import decompose
from tpu_export.converters.stablehlo.ops import registered_ops
from tpu_export.exporter.capture import capture

aten = torch.ops.aten


@torch.library.custom_op("tpx_test::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("tpx_test::riddle", mutates_args=())
def riddle(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


for _op in (mystery, riddle):
    _op.register_fake(torch.empty_like)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return mystery(mystery(x)) + riddle(torch.nn.functional.huber_loss(x, x * 2))


def test_all_unsupported_ops_are_reported_at_once() -> None:
    captured = capture(Model(), (torch.ones(3),))
    with pytest.raises(UnsupportedOpsError) as caught:
        captured.lower()
    found = {op.op: op.count for op in caught.value.ops}
    assert found == {"tpx_test.mystery.default": 2, "tpx_test.riddle.default": 1}
    assert "test_coverage.py:" in str(caught.value)


def test_coverage_says_how_each_op_is_lowered() -> None:
    program = capture(Model(), (torch.ones(3),)).program
    status = {op.op: op.status for op in coverage(program)}
    assert status["tpx_test.mystery.default"] == "unsupported"
    assert status["aten.add.Tensor"] == "rule"


def test_a_decomposition_depends_on_which_ops_have_rules() -> None:
    x = torch.rand(3)
    program = capture(nn.BCEWithLogitsLoss(), (x, x)).program
    loss = aten.binary_cross_entropy_with_logits.default
    (node,) = [n for n in program.graph.nodes if n.target is loss]
    inner = aten.log_sigmoid_forward.default
    for known, kept in ((inner, True), (aten.silu.default, False)):  # as many
        found = decompose(node, [known])
        assert found is not None
        assert (inner in [n.target for n in found.graph.graph.nodes]) is kept


def test_a_decomposition_that_fixes_a_dynamic_size_is_not_one() -> None:
    def transform(x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 8, 2, return_complex=True, center=False)

    n = torch.export.Dim("n", min=16, max=64)
    program = capture(transform, (torch.ones(2, 20),), dynamic_shapes=({1: n},)).program
    node = next(n for n in program.graph.nodes if n.target is aten.stft.default)
    found = decompose(node, set(registered_ops()) - {node.target})
    assert found is not None
    assert found.fixed
