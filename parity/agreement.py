"""How one output agrees with its reference, in the numbers that people judge quantization by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpu_export.parity.metrics import difference
from tpu_export.parity.snr import Array, snr

_CLASSES = 10


@dataclass(frozen=True)
class Agreement:
    """One output of a file against a reference, over all samples.

    Attributes:
        file: "float" or "quantized"; reference: "eager" or "float".
        snr: decibels; infinity when equal. max_rel: see `parity.metrics`.
        top1, top5: share of rows whose largest element is the reference's largest, or among
            its five largest; None where the last dimension has fewer than 10 elements, or
            the output is no float: then it does not look like logits.
    """

    signature: str
    output: str
    file: str
    reference: str
    snr: float
    cosine: float
    max_abs: float
    max_rel: float
    top1: float | None
    top5: float | None

    @property
    def name(self) -> str:
        """What is compared with what, in words."""
        return f"{self.output!r} of {self.signature!r}, {self.file} against {self.reference}"


def agreement(
    names: tuple[str, str, str, str],
    found: Sequence[Array],
    expected: Sequence[Array],
) -> Agreement:
    """Compare the values of one output, one array a sample.

    Args:
        names: signature, output, file and reference.
    """
    actual = np.concatenate([np.asarray(x).reshape(-1) for x in found])
    wanted = np.concatenate([np.asarray(x).reshape(-1) for x in expected])
    apart = difference(actual.astype(np.float64), wanted.astype(np.float64))
    top1, top5 = _top(found, expected, 1), _top(found, expected, 5)
    return Agreement(
        *names,
        snr=snr(actual, wanted),
        cosine=apart.cosine,
        max_abs=apart.max_abs,
        max_rel=apart.max_rel,
        top1=top1,
        top5=top5,
    )


def _top(found: Sequence[Array], expected: Sequence[Array], count: int) -> float | None:
    shape, kind = expected[0].shape, expected[0].dtype.kind
    if not shape or shape[-1] < _CLASSES or kind != "f":
        return None
    hits = [
        (np.argsort(-e, axis=-1, kind="stable")[..., :count] == _first(f)).any(-1)
        for f, e in zip(found, expected, strict=True)
    ]
    rows = np.concatenate([h.reshape(-1) for h in hits])
    return float(rows.mean()) if rows.size else None


def _first(array: Array) -> Array:
    largest: Array = np.argmax(array, axis=-1)[..., None]
    return largest
