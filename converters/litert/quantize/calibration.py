"""Calibration data: real inputs of each signature, from files or a Python generator."""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tpu_export.converters.litert.exchange import Array
from tpu_export.converters.litert.quantize.errors import CalibrationError
from tpu_export.converters.litert.sizes import fits
from tpu_export.runtime.dims import solve_dims
from tpu_export.runtime.signature import Signature

MAX_CALLS = 512
_FORMS = "give calls.npz, a folder of .npz files, or data.py:batches"


def calibration_data(
    text: str,
    signatures: Mapping[str, Signature],
    dims: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, list[dict[str, Array]]]:
    """Read the calls of every signature.

    Args:
        text: "calls.npz" (an array for each input; with one axis more, a call for each of its
            entries), a folder of such files, or "data.py:batches": an iterable, or a function
            that returns one, of dicts by input, tuples, or one array. With several
            signatures, a folder has one folder for each, and the function takes the name.
        signatures: by name.
        dims: sizes of dynamic dimensions, by signature; one without may have any.

    Returns:
        at most 512 calls of each signature.

    Raises:
        CalibrationError: it cannot be read, or does not fit; names the call and the input.
    """
    found: dict[str, list[dict[str, Array]]] = {}
    for name, signature in signatures.items():
        raw = _calls(text, name, several=len(signatures) > 1)
        sizes = (dims or {}).get(name, {})
        calls = (
            call
            for number, entry in enumerate(raw)
            for call in _checked(entry, number, signature, sizes)
        )
        try:
            found[name] = list(islice(calls, MAX_CALLS))
        except CalibrationError:
            raise
        except Exception as error:  # of the user's code, or of numpy's reader
            raise CalibrationError(
                f"reading {text} for {name!r} raised {type(error).__name__}: {error}",
                hint=_FORMS,
            ) from error
        if not found[name]:
            raise CalibrationError(f"{text} has no call of {name!r}", hint=_FORMS)
    return found


def _calls(text: str, name: str, *, several: bool) -> Iterator[Any]:
    file, colon, attribute = text.rpartition(":")
    if colon and file.endswith(".py"):
        yield from _generated(Path(file), attribute, name)
        return
    path = Path(text)
    if path.is_dir():
        folder = path / name if several else path
        files = sorted(folder.glob("*.npz"))
    else:
        if several:
            raise CalibrationError(
                f"{text} is one file, and the model has several signatures",
                hint="give a folder with a folder of .npz files for each signature",
            )
        files = [path]
    for file_path in files:
        with np.load(file_path, allow_pickle=False) as arrays:
            yield dict(arrays)


def _generated(file: Path, attribute: str, name: str) -> Iterator[Any]:
    if not file.is_file():
        raise CalibrationError(f"there is no file {file}", hint=_FORMS)
    namespace = runpy.run_path(str(file))
    if attribute not in namespace:
        raise CalibrationError(f"{file} has no {attribute}", hint=_FORMS)
    source = namespace[attribute]
    if callable(source):
        takes_name = len(inspect.signature(source).parameters) > 0
        source = source(name) if takes_name else source()
    if not isinstance(source, Iterable):
        raise CalibrationError(
            f"{attribute} of {file} gives a {type(source).__name__}",
            hint="return or yield dicts of arrays by input name",
        )
    yield from source


def _checked(
    raw: Any, number: int, signature: Signature, dims: Mapping[str, int]
) -> list[dict[str, Array]]:
    """Return the calls of one entry in the inputs' dtypes and shapes."""
    specs = {spec.name: spec for spec in signature.inputs}
    named = _by_name(raw, list(specs), number)
    wrong = [f"unknown input {n!r}" for n in named if n not in specs]
    wrong += [f"missing input {n!r}" for n in specs if n not in named]
    shapes = {
        n: tuple(dims.get(d, d) if isinstance(d, str) else d for d in spec.shape)
        for n, spec in specs.items()
    }
    arrays = {n: np.asarray(value) for n, value in named.items()}
    stacked = not wrong and all(a.ndim == len(shapes[n]) + 1 for n, a in arrays.items())
    for n, array in arrays.items() if not wrong else ():
        got = array.shape[1:] if stacked else array.shape
        if not fits(got, shapes[n]):
            wrong.append(f"{n} has shape {got}, not {shapes[n]}")
        if not _same_kind(array.dtype, np.dtype(specs[n].dtype)):
            wrong.append(f"{n} is {array.dtype}, not {specs[n].dtype}")
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            wrong.append(f"{n} has NaN or infinite values")
    if not wrong:
        given = {n: a.shape[1:] if stacked else a.shape for n, a in arrays.items()}
        wrong += solve_dims(signature.inputs, given, signature.dims)[1]
    if wrong:
        known = (f"{n}: {specs[n].dtype}{list(s)}" for n, s in shapes.items())
        raise CalibrationError(
            f"call {number} does not fit {signature.name!r}: {'; '.join(wrong)}",
            hint=f"its inputs are {', '.join(known)}",
        )
    typed = {n: a.astype(specs[n].dtype) for n, a in arrays.items()}
    if not stacked:
        return [typed]
    count = min(len(a) for a in typed.values()) if typed else 0
    return [{n: a[i] for n, a in typed.items()} for i in range(count)]


def _same_kind(given: Any, wanted: Any) -> bool:
    """Whether a cast keeps the meaning: floats to floats, integers to integers."""
    kinds = {"f": "f", "i": "i", "u": "i", "b": "b"}
    return kinds.get(given.kind) == kinds.get(wanted.kind)


def _by_name(raw: Any, names: Sequence[str], number: int) -> dict[str, Any]:
    if isinstance(raw, Mapping):
        return dict(raw)
    values = list(raw) if isinstance(raw, tuple | list) else [raw]
    if len(values) != len(names):
        raise CalibrationError(
            f"call {number} has {len(values)} values for the inputs {', '.join(names)}",
            hint="yield a tuple in this order, or a dict",
        )
    return dict(zip(names, values, strict=True))
