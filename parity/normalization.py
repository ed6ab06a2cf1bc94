"""`--preprocess`: how the bytes of an image become what the model was trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tpu_export.runtime.errors import TpuExportError

Floats: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float32]]
_BYTES = np.arange(256, dtype=np.float32)


class PreprocessError(TpuExportError):
    """A normalization that cannot be read, or does not fit the model's inputs."""

    code = "TPX-0631"


@dataclass(frozen=True)
class Normalization:
    """(x / 255 - mean) / std of a uint8 image x, as torchvision's ToTensor and Normalize do.

    Attributes:
        mean: of each channel on the scale 0 … 1, or one for all.
        std: likewise; positive.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def channels(self) -> int:
        """Return the number of channels that it is for; 1 for any."""
        return max(len(self.mean), len(self.std))

    def factors(self) -> tuple[Floats, Floats]:
        """Return what the file computes with: float32 a and b of a * x + b."""
        mean, std = (np.asarray(v, np.float64) for v in (self.mean, self.std))
        slope, offset = np.broadcast_arrays(1 / (255 * std), -mean / std)
        return slope.astype(np.float32), offset.astype(np.float32)

    def error(self) -> float:
        """Return the largest difference of a * x + b from torch's own steps, over all bytes."""
        slope, offset = (v[:, None] for v in self.factors())
        mean, std = (np.asarray(v, np.float32)[:, None] for v in (self.mean, self.std))
        steps = (_BYTES / np.float32(255) - mean) / std
        return float(np.abs(slope * _BYTES + offset - steps).max())

    def __str__(self) -> str:
        """Give it as `--preprocess` takes it."""
        return "/".join(",".join(map(repr, v)) for v in (self.mean, self.std))


# ImageNet's statistics: torchvision's `transforms.Normalize` of its pretrained models.
PRESETS = {
    "unit": Normalization((0.0,), (1.0,)),
    "signed": Normalization((0.5,), (0.5,)),
    "imagenet": Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def read_normalization(text: str) -> Normalization:
    """Read "imagenet", or "mean,mean,mean/std,std,std" on the scale 0 … 1.

    Raises:
        PreprocessError: it is neither.
    """
    if text in PRESETS:
        return PRESETS[text]
    mean, _, std = text.partition("/")
    try:
        found = Normalization(_numbers(mean), _numbers(std))
    except ValueError:
        raise PreprocessError(
            f"no preprocessing {text!r}",
            hint=f"give one of {', '.join(PRESETS)}, or mean/std of each channel on the scale "
            "0 to 1: 0.485,0.456,0.406/0.229,0.224,0.225",
        ) from None
    counts = {len(found.mean), len(found.std)} - {1}
    if min(found.std) <= 0 or len(counts) > 1:
        raise PreprocessError(
            f"preprocessing {text!r} has {len(found.mean)} means and {len(found.std)} standard "
            "deviations",
            hint="give as many of each, or one for all channels; deviations are above 0",
        )
    return found


def _numbers(text: str) -> tuple[float, ...]:
    found = tuple(map(float, text.split(",")))
    if not all(map(math.isfinite, found)):
        raise ValueError(text)
    return found


def axis_of_channels(shape: Sequence[object]) -> int | None:
    """Return the axis of [N, C, H, W] or [C, H, W]; None for another rank."""
    return {4: 1, 3: 0}.get(len(shape))
