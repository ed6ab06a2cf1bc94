from __future__ import annotations

import pytest
import torch

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError

aten = torch.ops.aten
ROWS = torch.tensor([[1, 0, -1, 2], [3, -1, 3, 3], [-1, 0, 1, 2], [0, 1, 2, 3]])
TOL = (1e-5, 1e-5)
REDUCTIONS = pytest.mark.parametrize("reduction", [0, 1, 2])


@REDUCTIONS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_end_at_the_first_negative(compare, reduction, dtype):
    x = torch.randn(4, 4, dtype=dtype)
    compare(aten.multilabel_margin_loss.default, x, ROWS, reduction, tol=TOL)
    compare(aten.multilabel_margin_loss_forward.default, x, ROWS, reduction, tol=TOL)
    twice = torch.tensor([[1, 1, 0, -1]] * 4)
    compare(aten.multilabel_margin_loss.default, x, twice, reduction, tol=TOL)


@REDUCTIONS
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weight", [None, torch.rand(5)])
def test_one_label_a_row(compare, reduction, p, weight):
    op, options = aten.multi_margin_loss.default, (p, 0.7, weight, reduction)
    compare(op, torch.randn(3, 5), torch.tensor([4, 0, 2]), *options, tol=TOL)
    compare(op, torch.randn(5), torch.tensor([3]), *options, tol=TOL)
    compare(op, torch.randn(1, 5), torch.tensor([3]), *options, tol=TOL)


@pytest.mark.parametrize("reduction", [1, 2])
def test_one_row(compare, reduction):
    for x, target in [(torch.randn(4), ROWS[0]), (torch.tensor(2.0), torch.tensor(0))]:
        compare(aten.multilabel_margin_loss.default, x, target, reduction, tol=TOL)
    op, one = aten.multi_margin_loss.default, torch.tensor(1)
    compare(op, torch.randn(4), one, 1, 1, None, reduction, tol=TOL)
    compare(op, torch.randn(1, 4), one, 1, 1, None, reduction, tol=TOL)


@pytest.mark.parametrize(
    ("module", "target"),
    [
        (torch.nn.MultiLabelMarginLoss(reduction="none"), ROWS[0]),
        (torch.nn.MultiMarginLoss(reduction="none"), torch.tensor(1)),
    ],
)
def test_one_row_without_reduction_is_refused(run_module, module, target):
    """torch's fake tensors say [1] where eager gives []."""
    with pytest.raises(UnsupportedOptionError, match="one row"):
        run_module(module, (torch.randn(4), target))
