"""Inputs of `run`: arrays by name from .npz, .npy or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, is_zipfile

from tpu_export.cli.failures import UsageError
from tpu_export.cli.json_values import numbers

if TYPE_CHECKING:
    from tpu_export.runtime.signature import Signature

_UNREADABLE = (OSError, ValueError, TypeError, OverflowError, IndexError, BadZipFile)


def read_inputs(source: str, signature: Signature) -> dict[str, Any]:
    """Read arrays by name from .npz, .json, or JSON on standard input.

    Raises:
        UsageError: they cannot be read, or do not fit their dtypes exactly.
    """
    from tpu_export.runtime.tensors import numpy_dtype

    dtypes = {spec.name: numpy_dtype(spec.dtype) for spec in signature.inputs}
    try:
        if source != "-" and Path(source).suffix in (".npz", ".npy"):
            only = next((spec.name for spec in signature.inputs), "input")
            arrays = _load(source, only)
            return {n: _named(v, dtypes.get(n)) for n, v in arrays.items()}
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
        return {n: _exact(n, v, dtypes.get(n)) for n, v in _object(text).items()}
    except RecursionError as error:
        raise _unreadable(source, "it is nested too deep") from error
    except OSError as error:
        raise _unreadable(source, error.strerror or str(error)) from error
    except _UNREADABLE as error:
        raise _unreadable(source, str(error)) from error


def _unreadable(source: str, reason: str) -> UsageError:
    return UsageError(
        f"cannot read inputs from {source}: {reason}",
        hint='give a .npz, a .npy, or JSON such as {"x": [[1, 2]]}',
    )


def _load(source: str, only: str) -> dict[str, Any]:
    """Return the arrays of a .npz by name; the one of a .npy is called `only`.

    Raises:
        ValueError: the file is of another kind, or holds Python objects.
    """
    import numpy as np

    suffix = Path(source).suffix
    with Path(source).open("rb") as file:
        is_npy = file.read(6) == b"\x93NUMPY"
    if not (is_npy if suffix == ".npy" else is_zipfile(source)):
        message = f"it is no {suffix} file"
        raise ValueError(message)
    try:
        if is_npy:
            return {only: np.load(source, allow_pickle=False)}
        with np.load(source, allow_pickle=False) as file:
            return dict(file.items())
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        message = "it holds Python objects, not arrays of numbers"
        raise ValueError(message) from error


def _object(text: str) -> dict[str, Any]:
    """Return JSON's values by name.

    Raises:
        ValueError: it is no object, has a name twice, or a number that no float holds.
    """
    values = json.loads(text, object_pairs_hook=_distinct, parse_float=_finite)
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else "a single value"
        message = f"it is {kind}, not an object of arrays by name"
        raise ValueError(message)
    return values


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    repeated = [n for i, n in enumerate(names) if n in names[:i]]
    if repeated:
        message = f"the name {repeated[0]!r} is there twice"
        raise ValueError(message)
    return dict(pairs)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        message = f"{text} is outside the range of float64"
        raise ValueError(message)
    return value


def _named(array: Any, dtype: Any) -> Any:
    """Name the dtype of an array that .npz holds as nameless bytes (bfloat16)."""
    nameless = dtype is not None and array.dtype.kind == "V" == dtype.kind
    if nameless and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    return array


def _exact(name: str, value: Any, dtype: Any) -> Any:
    """Make an array of JSON's numbers; a fraction is never cut to an integer.

    Raises:
        ValueError: the values are no integers, or no booleans, but must be; or a number
            is outside the dtype's range.
    """
    import numpy as np

    floats = getattr(dtype, "kind", "") in ("f", "V")
    if floats:
        value = numbers(value)
    try:
        plain = np.array(value)
    except ValueError as error:
        message = f"{name} has rows of several lengths"
        raise ValueError(message) from error
    kinds = {"b": "b", "i": "iu", "u": "iu"}.get(getattr(dtype, "kind", ""), "biuf")
    if dtype is not None and plain.size and plain.dtype.kind not in kinds:
        said = {"U": "text", "O": "null or mixed"}.get(plain.dtype.kind, plain.dtype)
        message = f"{name} has {said} values where {dtype} is expected"
        raise ValueError(message)
    with np.errstate(over="ignore"):  # said below, with the number
        array = np.array(value, dtype)
    lost = plain[np.isfinite(plain) & np.isinf(array)] if floats else plain[:0]
    if lost.size:
        message = f"{name}: {lost.flat[0]} is outside the range of {dtype}"
        raise ValueError(message)
    return array
