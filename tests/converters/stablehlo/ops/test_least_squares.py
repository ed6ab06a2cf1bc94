from __future__ import annotations

import pytest
import torch

from tpu_export.converters.stablehlo.errors import UnsupportedOptionError
from tpu_export.converters.stablehlo.registry import find_rule

aten = torch.ops.aten
TOL = (1e-4, 1e-4)
TALL, WIDE, SQUARE = torch.randn(6, 3), torch.randn(3, 6), torch.randn(3, 3)
MANY, SIX, THREE = torch.randn(2, 6, 3), torch.randn(6, 2), torch.randn(3, 2)
LOW = torch.cat([TALL[:, :2], TALL[:, :1]], 1)  # of rank 2
COMPLEX = torch.randn(6, 3, dtype=torch.complex64)
CASES = [
    (TALL, SIX, {}),
    (WIDE, THREE, {}),
    (SQUARE, THREE, {}),
    (MANY, torch.randn(2, 6, 4), {}),
    (MANY, torch.randn(2, 6), {}),
    (TALL, SIX[:, 0], {}),
    (LOW, SIX, {}),
    (WIDE, THREE, {"rcond": 0.6, "driver": "gelsd"}),
    (WIDE, THREE, {"driver": "gels"}),
    (TALL, SIX, {"driver": "gels"}),
    (TALL, SIX, {"driver": "gelsd"}),
    (MANY, torch.randn(2, 6, 4), {"driver": "gelss"}),
    (COMPLEX, torch.randn(6, 2, dtype=torch.complex64), {"driver": "gels"}),
    (TALL.double(), SIX.double(), {}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(compare, case):
    a, b, kwargs = case
    compare(aten.linalg_lstsq.default, a, b, tol=TOL, **kwargs)


def test_a_cut_that_is_not_of_singular_values(compiled_rule):
    rule = find_rule(aten.linalg_lstsq.default, "xla")
    with pytest.raises(UnsupportedOptionError, match="pivoted QR"):
        compiled_rule(rule, TALL, SIX, 0.5)


def test_a_module_that_reads_the_solution(check_module):
    class Fit(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.linalg.lstsq(a, b, driver="gelsd").solution

    check_module(Fit(), (TALL, SIX), tol=TOL)
