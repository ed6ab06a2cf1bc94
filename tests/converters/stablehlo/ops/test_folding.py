from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten

# kernel, dilation, padding, stride
SETTINGS = [
    ([2, 3], [1, 1], [0, 0], [1, 1]),
    ([2, 3], [1, 1], [1, 0], [1, 2]),
    ([2, 2], [1, 1], [0, 0], [2, 2]),
    ([3, 2], [2, 1], [2, 1], [2, 3]),
]


@pytest.mark.parametrize("lead", [(2, 3), (3,)])
@pytest.mark.parametrize("settings", SETTINGS)
def test_fold_and_unfold(compare, settings, lead):
    x = torch.randn(*lead, 8, 7)
    compare(aten.im2col.default, x, *settings)
    columns = aten.im2col.default(x, *settings)
    compare(aten.col2im.default, columns, [8, 7], *settings)
