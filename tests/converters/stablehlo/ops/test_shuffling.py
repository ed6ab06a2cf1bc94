from __future__ import annotations

import pytest
import torch

aten = torch.ops.aten


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_pixel_shuffle(compare, lead):
    compare(aten.pixel_shuffle.default, torch.randn(*lead, 8, 3, 5), 2)
    compare(aten.pixel_unshuffle.default, torch.randn(*lead, 2, 6, 9), 3)


@pytest.mark.parametrize("shape", [(2, 6, 4), (2, 6, 4, 5)])
def test_channel_shuffle(compare, shape):
    compare(aten.channel_shuffle.default, torch.randn(*shape), 3)
