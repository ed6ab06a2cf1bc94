from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten
X = torch.randn(2, 3, 4)
CASES = [
    (aten.view.default, X, [6, -1]),
    (aten.reshape.default, X, [4, 6]),
    (aten.flatten.using_ints, X, 1),
    (aten.flatten.using_ints, torch.tensor(1.0)),
    (aten.unflatten.int, X, 2, [2, -1]),
    (aten.expand.default, X[:, :1], [5, 2, 3, -1]),
    (aten.permute.default, X, [2, 0, -2]),
    (aten.transpose.int, X, 0, -1),
    (aten.t.default, X[0]),
    (aten.mT.default, X),
    (aten.movedim.int, X, 0, 2),
    (aten.squeeze.default, X[:, :1, None].clone()),
    (aten.squeeze.dim, X, 1),
    (aten.squeeze.dims, X[:, :1, None], [1, 2, 3]),
    (aten.unsqueeze.default, X, -1),
    (aten.flip.default, X, [0, -1]),
    (aten.rot90.default, X, 1, [0, 1]),
    (aten.roll.default, X, [1, -2], [0, 2]),
    (aten.roll.default, X, [5]),
    (aten.repeat.default, X, [2, 1, 2, 1]),
    (aten.tile.default, X, [2]),
    (aten.diagonal.default, X, 1, 0, 2),
    (aten.diag_embed.default, X, 1),
    (aten.tril.default, X, -1),
    (aten.triu.default, X, 1),
    (aten.as_strided.default, torch.randn(12), [3, 4], [2, 1], 1),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
def test_shape(compare, case):
    compare(*case)
