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


def views(count: int) -> list[torch.Tensor]:
    """Return that photograph as a phone might take it: moved, nearer, mirrored, lighter, noisy.

    Returns:
        [1, 3, 224, 224] f32 each, on its scale; seeded, and no two alike.
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    for n in range(count):
        size = 224 + 8 * (n % 5)
        top, left = (
            int(v) for v in torch.randint(0, size - 223, (2,), generator=generator)
        )
        view = grace_hopper(size)[..., top : top + 224, left : left + 224]
        light = 1 + 0.1 * float(torch.randn((), generator=generator))
        noise = torch.randn(view.shape, generator=generator) * (2 / 128)
        view = view.flip(-1) if n % 2 else view
        found.append((view * light + noise).clamp(-127 / 128, 1).contiguous())
    return found
