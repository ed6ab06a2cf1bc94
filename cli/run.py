"""tpu-export run ARTIFACT --input FILE --output FILE."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any
from zipfile import BadZipFile

import click

from tpu_export.cli.failures import UsageError
from tpu_export.cli.json_values import json_text, numbers
from tpu_export.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from tpu_export.runtime.signature import Signature


_UNREADABLE = (OSError, ValueError, TypeError, OverflowError, IndexError, BadZipFile)


@click.command("run")
@click.argument("artifact", type=click.Path())
@click.option(
    "-i", "--input", "source", required=True, help="FILE.npz, .npy, .json or -."
)
@click.option("-o", "--output", "target", default="-", help="FILE.npz, FILE.json or -.")
@click.option("--signature", help="By default the only one, or forward.")
@click.option(
    "--device", default="auto", show_default=True, help="auto, cpu, tpu, tpu:N."
)
@click.option(
    "--executables",
    type=click.Choice(["auto", "never", "require"]),
    default="auto",
    show_default=True,
)
@verbose_option
def command(
    artifact: str,
    source: str,
    target: str,
    signature: str | None,
    device: str,
    executables: Any,
) -> None:
    """Run an artifact once. Inputs are arrays by name; nested names are dotted.

    In JSON, read or written, NaN and infinities are the strings "NaN", "Infinity" and
    "-Infinity".
    """
    from tpu_export.runtime.program import load

    with load(artifact, device=device, executables=executables) as program:
        names = list(program.signatures)
        name = signature or (names[0] if len(names) == 1 else "forward")
        wanted = program[name].signature
        arguments = _arguments(wanted, read_inputs(source, wanted))
        outputs = named_outputs(wanted, program[name](**arguments))
        origin = f"{name} on {program.device}: {program.origin[name]}"
    click.echo(origin, err=True)
    write_outputs(target, outputs)


def read_inputs(source: str, signature: Signature) -> dict[str, Any]:
    """Read arrays by name from .npz, .json, or JSON on standard input."""
    import numpy as np

    from tpu_export.runtime.tensors import numpy_dtype

    try:
        if source != "-" and Path(source).suffix == ".npz":
            with np.load(source, allow_pickle=False) as file:
                dtypes = {s.name: numpy_dtype(s.dtype) for s in signature.inputs}
                return {n: _named(v, dtypes.get(n)) for n, v in file.items()}
        if source != "-" and Path(source).suffix == ".npy":
            return {signature.inputs[0].name: np.load(source, allow_pickle=False)}
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
        values = json.loads(text)
        dtypes = {spec.name: numpy_dtype(spec.dtype) for spec in signature.inputs}
        return {n: _exact(v, dtypes.get(n)) for n, v in dict(values).items()}
    except _UNREADABLE as error:
        raise UsageError(
            f"cannot read inputs from {source}: {error}",
            hint='give a .npz, a .npy, or JSON such as {"x": [[1, 2]]}',
        ) from error


def _named(array: Any, dtype: Any) -> Any:
    """Name the dtype of an array that .npz holds as nameless bytes (bfloat16)."""
    nameless = dtype is not None and array.dtype.kind == "V" == dtype.kind
    if nameless and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    return array


def _exact(value: Any, dtype: Any) -> Any:
    """Make an array of JSON's numbers; a fraction is never cut to an integer.

    Raises:
        ValueError: the values are no integers, or no booleans, but must be.
    """
    import numpy as np

    if getattr(dtype, "kind", "") in ("f", "V"):
        value = numbers(value)
    plain = np.array(value)
    kinds = {"b": "b", "i": "iu", "u": "iu"}.get(getattr(dtype, "kind", ""), "biuf")
    if dtype is not None and plain.size and plain.dtype.kind not in kinds:
        raise ValueError(f"{plain.dtype} values where {dtype} is expected")
    return np.array(value, dtype)


def _arguments(signature: Signature, arrays: dict[str, Any]) -> dict[str, Any]:
    """Put flat arrays into the structure of the parameters.

    Raises:
        InputError: a name is unknown or missing.
    """
    from tpu_export.runtime.inputs import InputError, describe
    from tpu_export.runtime.trees import unflatten

    names = [spec.name for spec in signature.inputs]
    unknown, missing = (
        sorted(set(arrays) - set(names)),
        [n for n in names if n not in arrays],
    )
    if unknown or missing:
        words = [f"unknown inputs {', '.join(unknown)}"] if unknown else []
        words += [f"missing inputs {', '.join(missing)}"] if missing else []
        raise InputError(
            f"{signature.name}: {'; '.join(words)}",
            hint=f"the signature is {describe(signature)}",
        )
    leaves = [arrays[name] for name in names]
    return {p.name: unflatten(p.tree, leaves) for p in signature.parameters}


def named_outputs(signature: Signature, result: Any) -> dict[str, Any]:
    """Return the result's arrays by output name."""
    from tpu_export.runtime.trees import flatten

    found: dict[int, Any] = {}
    flatten(
        signature.output_tree,
        result,
        "result",
        lambda index, _, leaf: found.__setitem__(index, leaf),
    )
    return {spec.name: found[i] for i, spec in enumerate(signature.outputs)}


def _plain(array: Any) -> Any:
    """Widen what .npz has no dtype for (bfloat16) to float32, exactly."""
    return array.astype("float32") if array.dtype.kind == "V" else array


def _json(outputs: dict[str, Any]) -> str:
    """Return arrays by name as JSON.

    Raises:
        UsageError: complex numbers have no form in JSON.
    """
    refused = [n for n, v in outputs.items() if v.dtype.kind == "c"]
    if refused:
        raise UsageError(
            f"JSON has no complex numbers, and {', '.join(refused)} holds some",
            hint="choose --output FILE.npz",
        )
    return json_text({n: v.tolist() for n, v in outputs.items()})


def write_outputs(target: str, outputs: dict[str, Any]) -> None:
    """Write arrays by name to .npz, .json, or JSON on standard output."""
    if target == "-":
        click.echo(_json(outputs))
        return
    final = Path(target)
    try:
        with _replacing(final) as file:
            if target.endswith(".npz"):
                _write_npz(file, outputs)
            else:
                file.write(_json(outputs).encode())
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror}", hint="choose another --output"
        ) from error


def _write_npz(file: Any, outputs: dict[str, Any]) -> None:
    import numpy as np

    np.savez(file, **{n: _plain(v) for n, v in outputs.items()})


@contextmanager
def _replacing(final: Path) -> Iterator[IO[bytes]]:
    """Give a file that gets its name when all is written, and else leaves nothing."""
    if final.exists() and not final.is_file():  # /dev/null must stay what it is
        raise OSError(EINVAL, "it is no regular file")
    partial = final.with_name(f".{final.name}.{token_hex(6)}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)
