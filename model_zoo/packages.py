"""Optional packages of the zoo, and files that they carry."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tpu_export.runtime.errors import MissingExtraError


def package_file(package: str, relative: str) -> Path:
    """Return the path of a file in a package, without importing (running) the package.

    Raises:
        MissingExtraError: the package or the file is not there.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise MissingExtraError(package, "zoo")
    path = Path(spec.origin).parent / relative
    if not path.exists():
        raise MissingExtraError(f"{package} ({relative})", "zoo")
    return path


def transformers() -> Any:
    """Return the transformers library.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return import_module("transformers")
    except ImportError:
        raise MissingExtraError("transformers", "zoo") from None
