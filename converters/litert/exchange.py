"""Arrays handed to a worker process and back, as .npy files in a folder.

Reading them needs numpy only: importing ml_dtypes would take a worker most of a second.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
_NAMES = "names.json"


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays, of numpy's own dtypes, to a new folder."""
    folder.mkdir(parents=True)
    for number, array in enumerate(arrays.values()):
        path = folder / f"{number}.npy"
        np.save(path, np.asarray(array, order="C"), allow_pickle=False)
    (folder / _NAMES).write_text(json.dumps(list(arrays)))


def map_arrays(folder: Path) -> dict[str, Array]:
    """Return the arrays of a folder by name, mapped from their files where they have any."""
    names = json.loads((folder / _NAMES).read_text())
    return {
        name: _mapped(folder / f"{number}.npy") for number, name in enumerate(names)
    }


def _mapped(path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # an array without elements has nothing to map
        array = np.load(path, allow_pickle=False)
    return array
