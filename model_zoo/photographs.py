"""A real photograph, prepared as EfficientNet-Lite was trained: (pixel - 127) / 128."""

from __future__ import annotations

import numpy as np
import torch

from tpu_export.model_zoo.packages import package_file

MILITARY_UNIFORM = 652  # ImageNet's class of the photograph


def grace_hopper(size: int = 224) -> torch.Tensor:
    """Return Grace Hopper's portrait, [1, 3, size, size] f32: the centred square."""
    from PIL import Image

    path = package_file("matplotlib", "mpl-data/sample_data/grace_hopper.jpg")
    with Image.open(path) as image:
        side = min(image.size)
        left, top = ((extent - side) // 2 for extent in image.size)
        square = image.convert("RGB").crop((left, top, left + side, top + side))
        pixels = square.resize((size, size), Image.Resampling.BICUBIC)
    values = torch.from_numpy((np.asarray(pixels, np.float32) - 127) / 128)
    return values.permute(2, 0, 1)[None].contiguous()
