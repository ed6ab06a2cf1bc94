"""What tpu-export writes into a .tflite: names of the metadata entries, and their reading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tpu_export.converters.litert.contents import LiteRtFileError
from tpu_export.converters.litert.exchange import Array

ENTRY = "tpu_export"
VERSION = 1  # 1: the first
_GOLDEN = "tpu_export/golden/"


def packed(
    document: Mapping[str, object], golden: Mapping[str, Mapping[str, Array]]
) -> dict[str, bytes]:
    """Return the entries of a document and of golden arrays by signature."""
    text = json.dumps(
        document,
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
    arrays = {
        f"{_GOLDEN}{name}": save({k: _whole(v) for k, v in found.items()})
        for name, found in golden.items()
    }
    return {ENTRY: text.encode(), **arrays}


def _whole(array: Array) -> Array:
    # safetensors writes the memory as it lies.
    result: Array = np.ascontiguousarray(array).reshape(array.shape)
    return result


def read_document(path: Path, metadata: Mapping[str, bytes]) -> dict[str, Any] | None:
    """Return the document of a file; None where tpu-export did not make it.

    Raises:
        LiteRtFileError: it is damaged, or of a later version.
    """
    if ENTRY not in metadata:
        return None
    try:
        found = json.loads(metadata[ENTRY])
        version = found["version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise damaged(path) from error
    if version != VERSION:
        raise LiteRtFileError(
            f"{path} has metadata of version {version}, known is {VERSION}",
            hint="read it with the tpu-export that wrote it, or a later one",
        )
    return dict(found)


def golden(path: Path, metadata: Mapping[str, bytes]) -> dict[str, dict[str, Array]]:
    """Return golden arrays by signature, as "inputs/NAME" and "outputs/NAME".

    Raises:
        LiteRtFileError: they are damaged.
    """
    names = [name for name in metadata if name.startswith(_GOLDEN)]
    try:
        return {n.removeprefix(_GOLDEN): dict(load(metadata[n])) for n in names}
    except (SafetensorError, ValueError, KeyError) as error:
        raise damaged(path) from error


def damaged(path: Path) -> LiteRtFileError:
    """Return the error of metadata that cannot be read."""
    return LiteRtFileError(
        f"{path} has metadata of tpu-export that is damaged", hint="export it again"
    )
