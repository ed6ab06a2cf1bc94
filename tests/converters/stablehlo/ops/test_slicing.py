from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
X = torch.randn(5, 6, 4)
CASES = [
    (aten.slice.Tensor, X, 0, 1, 3),
    (aten.slice.Tensor, X, 1, -3, 2**63 - 1),
    (aten.slice.Tensor, X, 1, -30, 30, 2),
    (aten.slice.Tensor, X, 1, 4, 2),
    (aten.select.int, X, 1, -1),
    (aten.narrow.default, X, 1, 2, 3),
    (aten.cat.default, [X, X.double(), torch.zeros(0)], 1),
    (aten.stack.default, [X, X], -1),
    (aten.unbind.int, X, 1),
    (aten.split.Tensor, X, 2, 1),
    (aten.split.Tensor, X, 4, 1),
    (aten.split_with_sizes.default, X, [1, 3, 2], 1),
    (aten.chunk.default, X, 4, 1),
    (aten.tensor_split.sections, X, 4, 1),
    (aten.tensor_split.indices, X, [1, 4], 1),
    (aten.unfold.default, X, 1, 3, 2),
    (aten.unfold.default, X, 1, 2, 2),
    (aten.repeat_interleave.self_int, X, 3, 1),
    (aten.repeat_interleave.self_int, X, 2),
    (aten.hstack.default, [X, X]),
    (aten.block_diag.default, [X[0], X[1]]),
    (aten.meshgrid.default, [torch.arange(3), torch.arange(2)]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
def test_slicing(compare, case):
    compare(*case)
